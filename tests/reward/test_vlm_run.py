"""A run whose practice is judged by a vision-language model, a stand-in of which runs here."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from robot_rl.bench.vlm_standin import MODEL, Following, StandIn, Truth, serving
from robot_rl.cli.main import main
from robot_rl.reward.preference.train import reels
from robot_rl.reward.vlm.prefer import asking
from robot_rl.run.experiment import Experiment
from robot_rl.run.parts import learner_of
from robot_rl.store.labels import VLM_SUCCESS
from robot_rl.store.store import Store
from robot_rl.types import Step

for package in ("httpx", "fastapi", "uvicorn", "cv2"):
    pytest.importorskip(package)

pytestmark = pytest.mark.gl
TASK = "reward.task=put the peg into the hole"


def words(folder: Path, url: str, *more: str) -> list[str]:
    return [
        "experiment=peg_insert_easy_pixels", "runtime=lockstep", f"run_dir={folder}",
        "task.image_size=32", "algo.encoder.channels=[8]", "reward=vlm", TASK,
        "reward.camera=image/front", f"reward.server.url={url}",
        f"reward.server.model={MODEL}", "reward.server.retries=0",
        "reward.server.timeout_s=2", "reward.worker.poll_s=0.05", "reward.worker.again_s=1",
        "task.max_steps=20", "train.demos=1", "train.max_env_steps=60", "train.eval_episodes=1",
        "train.stochastic_eval_episodes=0", "train.video=false", "operator.intervene=false",
        "learner.min_steps=10", "learner.utd=1", *more,
    ]  # fmt: skip


def run(folder: Path, url: str, *more: str) -> None:
    assert main(["train", *words(folder, url, *more)]) in (0, 1)  # nothing is mastered in 60 steps


def practice(store: Store) -> list[Any]:
    return store.episodes(purpose="train")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Of a run that was labelled; the worker has caught up with it."""
    folder = tmp_path / "run"
    with serving(StandIn(Following(folder, "image/front"))) as url:
        run(folder, url)
        experiment = Experiment.compose(words(folder, url, "reward.shaping=0.5"))
        with Store(folder / "store.sqlite") as made:
            done = threading.Event()
            with experiment.reward.beside(made) as trouble:
                for _ in range(200):
                    said = {x.id for x in made.all_labels([VLM_SUCCESS])}
                    if said >= {s.id for s in practice(made)}:
                        break
                    done.wait(0.05)
                assert not trouble()
            yield made, experiment


def test_practice_is_unlabelled_until_the_model_has_looked(store: tuple[Store, Experiment]) -> None:
    made, experiment = store
    episodes = practice(made)
    assert episodes
    for start in episodes:
        steps = made.steps(start.id)
        assert all(s.reward is None for s in steps)
        labels = made.labels(start.id)
        assert len([x for x in labels if x.kind == VLM_SUCCESS]) == 1
        assert not {x.source for x in labels} - {"vlm", "predicate"}
        # what the stand-in said is what the simulator knows
        (said,) = (x.value for x in labels if x.kind == VLM_SUCCESS)
        true = [x.value for x in labels if x.source == "predicate" and x.kind == "success_score"]
        assert said == (sum(true[-5:]) >= 3)
    demos = made.episodes(purpose="demo")
    assert all(s.reward is not None for s in made.steps(demos[0].id))
    learner = learner_of(experiment, made)
    learner.ingest()
    assert learner.replay.len_online == sum(len(made.steps(s.id)) for s in episodes)
    held = {x.step for x in made.labels(episodes[0].id) if x.author.endswith(" held")}
    assert held == {f.frame for f in made.frames(episodes[0].id)}  # phi of every frame
    learner.close()


def test_a_server_that_is_down_invents_nothing_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl.learn.learner.IDLE_LINE_S", 0.0)
    folder = tmp_path / "run"
    run(folder, "http://127.0.0.1:9/v1")
    with Store(folder / "store.sqlite") as made:
        assert practice(made)
        assert {x.source for x in made.all_labels()} == {"predicate"}
        rows, _ = made.rows_since(0, 10**6)
    steps = [r for r in rows if isinstance(r, Step) and r.reward is None]
    assert len(steps) >= 60
    lines = [json.loads(x) for x in (folder / "learner.jsonl").read_text().splitlines()]
    said = {line.get("diagnostics/reward_model/what", "") for line in lines}
    assert any("server does not answer" in what for what in said)
    assert lines[-1]["learner/updates"] > 0  # from demonstrations, which a person has judged


def test_a_run_folder_comes_back_with_every_setting(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    where = "reward.where={tcp_twist.0: [-0.1, 0.1]}"
    for chosen in (words(folder, "http://127.0.0.1:9/v1"), ["reward=classifier", where]):
        experiment = Experiment.compose([*chosen, f"run_dir={folder}"])
        experiment.save()
        assert Experiment.load(folder).reward == experiment.reward
        (folder / "run.json").unlink()


def test_what_is_asked_has_to_be_said(tmp_path: Path, capsys: Any) -> None:
    wrong = [w for w in words(tmp_path / "run", "http://127.0.0.1:9/v1") if w != TASK]
    assert main(["train", *wrong]) == 2
    assert "to be told what it is" in capsys.readouterr().err
    blind = ["experiment=peg_insert", "reward=vlm", TASK, f"run_dir={tmp_path / 'blind'}"]
    assert main(["train", *blind, "reward.server.model=x"]) == 2
    assert "has to see the task" in capsys.readouterr().err


def test_preferences_of_a_model_become_a_reward(tmp_path: Path) -> None:
    mixed, worth = tmp_path / "mixed", tmp_path / "worth"
    record = ["record", "experiment=peg_insert_easy", "runtime=lockstep", "reward.hold_steps=3"]
    assert main([*record, "--demos", "2", f"run_dir={mixed}"]) == 0  # no camera: it is drawn
    prefer = ["reward", "prefer", str(mixed), "--out", str(worth), "--pairs", "20"]
    prefer += ["--rounds", "1", "--updates", "20", "--json", str(tmp_path / "told.json")]

    def knows(data: bytes) -> Truth:
        return Truth(False, (sum(data) % 1000) / 1000)

    with serving(StandIn(knows)) as url:
        ask = ["--server", url, "--vlm", MODEL, "--task", "put the peg into the hole"]
        assert main([*prefer, *ask]) == 0
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["asked"] == 20 and told["answers"] > 5
    assert (worth / "preference.safetensors").is_file()

    mirror = Experiment.load(mixed).mirror
    with Store(mixed / "store.sqlite") as store:
        reel = next(iter(reels(store, ["state"])))
    pairs, answers = [((reel, 0), (reel, t)) for t in range(1, 6)], []
    for protocol in ("chat", "heads"):  # one reward model or another: the same to who asks
        with (
            serving(StandIn(knows, protocol=protocol)) as url,
            asking(
                mixed, (), mirror, server=url, model=MODEL, task="go", protocol=protocol
            ) as judge,
        ):
            answers.append(judge(pairs))
    assert answers[0] == answers[1] and set(answers[0]) == {-1.0, 1.0}
