"""Steps that undo progress: found by a critic, left out by labels, and taken back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, SpecError
from robot_rl.learn.algos.chunked import ChunkedConfig
from robot_rl.learn.algos.hil_serl import HilSerlConfig
from robot_rl.learn.replay import Replay, View
from robot_rl.reward.progress.critic import (
    AUTHOR,
    find_harmful,
    harmful,
    phi_of_critic,
)
from robot_rl.run.experiment import Experiment
from robot_rl.run.parts import critic_of
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.left_out import leave_out, take_back
from robot_rl.store.store import Store
from robot_rl.types import Driver, EpisodeId, Frame, Row, Step

SPEC = Spec("sample", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, True))
STEPS = 12
BACK = (5, 6)  # the hand goes back here


class Critic:
    """Values a state by its first number, as a run's algorithm does."""

    spec = SPEC
    net = HilSerlConfig(hidden=(8,)).make(SPEC, 0).net
    observation_keys, critic, device = net.observation_keys, torch.zeros(2), torch.device("cpu")

    def moment(self, observation: dict[str, np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(observation["state"])

    def q(self, moment: torch.Tensor, action: torch.Tensor, critics: torch.Tensor) -> torch.Tensor:
        assert action.shape == (len(moment), 6)
        return moment[:, 0].expand(len(critics), -1)


def recorded(store: Store, driver: Driver, number: int) -> None:
    """An episode whose state says how far it is: 0, 0.1 ..., with a fall after step 6."""

    def told(row: Row) -> Row:
        if isinstance(row, Frame):
            far = row.frame * 0.1 - (0.4 if row.frame > BACK[-1] else 0.0)
            return replace(row, observation={"state": np.array((far, row.frame), np.float32)})
        return replace(row, driver=driver, reward=0.0) if isinstance(row, Step) else row

    store.append(
        [told(row) for row in episode_rows(SPEC, EpisodeId("run", "actor", number), STEPS)]
    )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as made:
        recorded(made, Driver.DEMO, 0)
        recorded(made, Driver.POLICY, 1)
        yield made


def test_a_fall_is_harmful_a_small_dip_and_a_late_one_are_not() -> None:
    phi = np.array((0.1, 0.2, 0.5, 0.2, 0.45, 0.5, 0.45, 0.6, 0.9), np.float32)
    assert harmful(phi, drop=0.1, ahead=1) == [2]
    assert harmful(phi, drop=0.1, ahead=5) == [2]
    assert harmful(phi, drop=0.04, ahead=1) == [2, 5]
    assert harmful(np.array((0.5, 0.6, 0.7), np.float32), 0.01, 5) == []
    slow = np.linspace(0.9, 0.0, 10).astype(np.float32)
    assert harmful(slow, drop=0.25, ahead=3) == list(range(7))


def test_what_people_did_to_no_avail_is_left_out_and_may_come_back(store: Store) -> None:
    found = list(find_harmful(store, phi_of_critic(Critic()), drop=0.15, ahead=2))
    assert [len(one.progress) for one in found] == [STEPS, STEPS]
    assert found[0].harmful == list(BACK)
    assert found[1].harmful == []  # the policy's own steps are not cloned anyway
    steps = {one.id: one.harmful for one in found}
    assert leave_out(store, steps, AUTHOR) == (2, 0)
    assert leave_out(store, steps, AUTHOR) == (0, 0)  # said once
    labels = store.labels(found[0].id)
    assert {x.author for x in labels} == {AUTHOR} and {x.step for x in labels} == set(BACK)
    fewer = {id_: harmful[:1] for id_, harmful in steps.items()}
    assert leave_out(store, fewer, AUTHOR) == (0, 1)  # another threshold takes one back
    assert leave_out(store, steps, AUTHOR) == (1, 0)
    assert take_back(store, "somebody else") == 0
    assert take_back(store, AUTHOR) == 2
    assert take_back(store, AUTHOR) == 0


def test_nobody_learns_from_what_is_left_out(store: Store) -> None:
    def seen() -> dict[int, int]:
        """Step of a person -> how many actions in a row are read from there."""
        replay, cursor = Replay(SPEC, 100, ("state",), view=View(chunk=4, demo_only=True)), 0
        while (read := store.rows_since(cursor, 1000))[0]:
            cursor = read[1]
            replay.ingest(read[0])
        batch = replay.sample(500, 1.0, np.random.default_rng(0))
        assert batch.valid is not None
        steps = batch.observation["state"][:, 1].astype(int)
        return dict(zip(steps.tolist(), batch.valid.sum(1).tolist(), strict=True))

    before = seen()
    assert sorted(before) == list(range(STEPS)) and before[3] == 4
    found = find_harmful(store, phi_of_critic(Critic()), drop=0.15, ahead=2)
    leave_out(store, {one.id: one.harmful for one in found}, AUTHOR)
    after = seen()
    assert sorted(before.keys() - after.keys()) == list(BACK)
    assert (after[3], after[4], after[7]) == (2, 1, 4)  # a chunk ends before them
    take_back(store, AUTHOR)
    assert seen() == before


def test_data_of_another_spec_is_named(tmp_path: Path) -> None:
    other = replace(SPEC, observation={"state": TensorSpec((3,), "float32")})
    with Store(tmp_path / "other.sqlite", spec=other, reserve_bytes=0) as store:
        store.append(episode_rows(other, EpisodeId("run", "actor", 0), 4))
        with pytest.raises(SpecError, match="does not match"):
            list(find_harmful(store, phi_of_critic(Critic()), drop=0.1, ahead=2))


def test_the_command_from_a_critic_to_labels_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.train import train

    short = [
        "experiment=reach", "runtime=lockstep", "train.max_env_steps=0", "train.video=false",
        "train.eval_episodes=1", "train.stochastic_eval_episodes=0", "algo.hidden=[16]",
    ]  # fmt: skip
    run = tmp_path / "run"
    train(
        Experiment.compose(
            [*short, "train.demos=3", "learner.pretrain_updates=20", f"run_dir={run}"]
        )
    )
    said = ["filter", str(run), "--critic", str(run), "--drop", "0.0001"]
    assert main(said) == 0
    out = capsys.readouterr().out
    assert "--write leaves them out" in out and "episode 0" in out
    assert main([*said, "--write", "--json", str(tmp_path / "f.json")]) == 0
    assert main(["filter", str(run), "--undo"]) == 0
    assert "taken back in" in capsys.readouterr().out
    for wrong in ([], ["--critic", str(run), "--undo"], ["--critic", str(run), "--drop", "0"]):
        assert main(["filter", str(run), *wrong]) != 0


def test_a_run_without_critics_of_steps_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    for words, said in (
        (["algo=bc"], "no critics of single steps"),
        (["algo=hil_serl"], "learned nothing yet"),
    ):
        folder = Experiment.compose(
            ["experiment=reach", *words, f"run_dir={tmp_path / said.replace(' ', '_')}"]
        ).save()
        with pytest.raises(ConfigError, match=said):
            critic_of(folder)
    assert ChunkedConfig().chunk > 1
