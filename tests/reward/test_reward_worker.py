"""The reward worker on a store of made-up episodes: what it labels, what it leaves alone, and that
nothing that goes wrong becomes a label or an exception."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.faults.rewards import CAMERA, SPEC, STEPS, TASK, episode, id_of, picture
from robot_rl.bench.vlm_standin import MODEL, StandIn, Truth, brightness, recorded, serving, table
from robot_rl.errors import ConfigError, SpecError
from robot_rl.reward.config import VlmRewardConfig
from robot_rl.reward.vlm.canary import Canary
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import QuestionKind
from robot_rl.reward.vlm.worker import (
    HELD,
    MAX_FAILED,
    SOURCE,
    VLM_SUCCESS,
    RewardWorker,
    WorkerConfig,
)
from robot_rl.store.labels import PROGRESS, PROGRESS_CHANGE, SUCCESS_SCORE
from robot_rl.store.store import EPISODE_ABORTED, Store
from robot_rl.types import Ending, Event, Label

for package in ("httpx", "fastapi", "uvicorn", "cv2"):
    pytest.importorskip(package)

CONFIG = WorkerConfig()


class Bench:
    """A store, a stand-in, a clock that is moved by hand."""

    def __init__(self, store: Store, stand_in: StandIn, url: str) -> None:
        self.store, self.stand_in, self.url = store, stand_in, url
        self.now_s = 0.0
        self.open: list[VlmClient] = []

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def worker(
        self, config: WorkerConfig = CONFIG, canary: bool = True, **words: Any
    ) -> RewardWorker:
        settings = {"url": self.url, "model": MODEL, "retries": 1, **words}
        client = VlmClient(VlmConfig(**settings), now_s=lambda: self.now_s, sleep=self.sleep)
        self.open.append(client)
        bird = Canary((picture(0.95),), (picture(0.1),), TASK) if canary else None
        return RewardWorker(
            self.store, client, bird, config, task=TASK, camera=CAMERA, now_s=lambda: self.now_s
        )

    @property
    def asked(self) -> int:
        return sum(self.stand_in.asked.values())

    def labels(self, number: int, kind: str) -> dict[int | None, float]:
        """Of the model itself: step -> value."""
        return {
            x.step: x.value
            for x in self.store.labels(id_of(number))
            if x.kind == kind and x.source == SOURCE and not x.author.endswith(HELD)
        }


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StandIn, str]]:
    stand_in = StandIn(brightness)
    with serving(stand_in) as url:
        yield stand_in, url


@pytest.fixture
def bench(served: tuple[StandIn, str], tmp_path: Path) -> Iterator[Bench]:
    stand_in, url = served
    vars(stand_in).update(vars(StandIn(brightness)))  # as new
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        made = Bench(store, stand_in, url)
        yield made
        for client in made.open:
            client.close()


def finish(worker: RewardWorker, turns: int = 60) -> int:
    """Turns until nothing waits; the labels written."""
    written = 0
    for _ in range(turns):
        written += worker.turn()
        if not worker.waiting:
            break
    return written


# -- what it writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["chat", "heads"])
def test_an_episode_gets_scores_progress_and_a_verdict(bench: Bench, protocol: str) -> None:
    bench.store.append([*episode(0), *episode(1, top=0.5)])
    bench.stand_in.protocol = protocol
    url = bench.url if protocol == "chat" else bench.url.removesuffix("/v1")
    worker = bench.worker(protocol=protocol, url=url)
    written = finish(worker)
    assert not worker.waiting and not worker.trouble
    assert written == len([x for n in (0, 1) for x in bench.store.labels(id_of(n))])

    truth = np.linspace(0.0, 1.0, STEPS + 1)
    scores = bench.labels(0, SUCCESS_SCORE)
    assert sorted(scores) == [20, 21, 22, 23, 24]  # of steps: what they led to
    assert [scores[s] > 0.5 for s in sorted(scores)] == [t >= 0.9 for t in truth[21:]]
    progress = bench.labels(0, PROGRESS)
    assert sorted(progress) == [10, 20, 25]  # of frames: once a second, and the last
    for frame, value in progress.items():
        assert value == pytest.approx(truth[frame], abs=0.01)
    assert bench.labels(0, VLM_SUCCESS) == {None: 1.0} and bench.labels(1, VLM_SUCCESS) == {
        None: 0.0
    }

    (author,) = {x.author for x in bench.store.labels(id_of(0)) if x.kind == SUCCESS_SCORE}
    version = {"chat": "", "heads": "heads-v1"}[protocol]
    assert author.startswith(f"{MODEL} success@{version}")
    newest = max(x.stamp_ns for x in bench.store.labels(id_of(0)))
    assert abs(newest - time.time_ns()) < 60e9  # wall-clock: it is beside a person's word


def test_progress_between_is_held_and_never_looks_ahead(bench: Bench) -> None:
    bench.store.append(episode(0))
    worker = bench.worker()
    finish(worker)
    asked = bench.labels(0, PROGRESS)
    held = [x for x in bench.store.labels(id_of(0)) if x.author.endswith(HELD)]
    assert [x.step for x in held] == list(range(STEPS + 1)) and {x.kind for x in held} == {PROGRESS}
    for x in held:
        assert x.step is not None
        before = [f for f in sorted(asked) if f <= x.step]
        assert x.value == (asked[before[-1]] if before else 0.0)


def test_changes_add_up_to_progress_as_far_as_they_are_known(bench: Bench) -> None:
    bench.store.append(episode(0))
    finish(bench.worker(WorkerConfig(success_frames=0, way="change", fill=True)))
    changes = bench.labels(0, PROGRESS_CHANGE)
    assert sorted(changes) == [10, 20, 25] and not bench.labels(0, PROGRESS)
    held = [x for x in bench.store.labels(id_of(0)) if x.author.endswith(HELD)]
    truth = np.linspace(0.0, 1.0, STEPS + 1)
    assert [x.step for x in held] == list(range(STEPS + 1)) and {x.kind for x in held} == {PROGRESS}
    for x in held:
        assert x.step is not None
        before = max([f for f in changes if f <= x.step], default=0)
        assert x.value == pytest.approx(truth[before], abs=0.02)
    bench.store.append(episode(1))
    worker = bench.worker(WorkerConfig(success_frames=0, way="change", questions_per_turn=1))
    assert worker.turn() == 1  # the change up to frame 10
    bench.stand_in.faults = {"refusal": 1.0}
    finish(worker)
    known = [x.step for x in bench.store.labels(id_of(1)) if x.kind == PROGRESS]
    assert known == list(range(20))  # at 20 nobody knows what has changed


def test_what_is_not_asked_is_not_written(bench: Bench) -> None:
    bench.store.append(episode(0))
    finish(bench.worker(WorkerConfig(success_frames=0, fill=False)))
    assert {x.kind for x in bench.store.labels(id_of(0))} == {PROGRESS}
    bench.store.append(episode(1))
    finish(bench.worker(WorkerConfig(period_s=0.0)))
    assert {x.kind for x in bench.store.labels(id_of(1))} == {SUCCESS_SCORE, VLM_SUCCESS}


def test_frames_that_disagree_come_to_no_verdict(bench: Bench) -> None:
    levels = [*np.linspace(0.0, 0.5, STEPS - 3), 0.95, 0.2, 0.95, 0.2]
    bench.store.append(episode(0, levels))
    finish(bench.worker(WorkerConfig(success_frames=4, success_needed=3)))
    assert len(bench.labels(0, SUCCESS_SCORE)) == 4 and bench.labels(0, VLM_SUCCESS) == {}
    bench.store.append(episode(1, [0.0, 0.95]))  # shorter than what is asked: all of it counts
    finish(bench.worker())
    assert bench.labels(1, VLM_SUCCESS) == {None: 1.0}


def test_labels_of_others_stay_and_do_not_count(bench: Bench) -> None:
    rows = episode(0)
    others = [
        Label(id_of(0), 0, 24, SUCCESS_SCORE, 0.0, "classifier", "x", 1),
        Label(id_of(0), 0, None, "success", 0.0, "person", "ada", 2),
        Label(id_of(0), 0, None, VLM_SUCCESS, 0.0, SOURCE, f"{MODEL} success@0000000000", 3),
    ]
    bench.store.append([*rows, *others])
    finish(bench.worker())
    verdicts = [x for x in bench.store.labels(id_of(0)) if x.kind == VLM_SUCCESS]
    assert sorted(x.value for x in verdicts) == [0.0, 1.0]
    assert len(bench.labels(0, SUCCESS_SCORE)) == 5


# -- which episodes --------------------------------------------------------------------------------


def test_exams_running_and_aborted_episodes_are_left_alone(bench: Bench) -> None:
    bench.store.append(
        [
            *episode(0, purpose="eval"),
            *episode(1, ending=None),
            *episode(2, ending=Ending.ABORTED),
            *episode(3, ending=None),
            Event(id_of(3), 0, 24, EPISODE_ABORTED, "", 1),
        ]
    )
    worker = bench.worker()
    assert worker.turn() == 0 and worker.waiting == 0
    assert not bench.store.all_labels() and bench.asked == 3  # getting acquainted, and the canary


def test_the_newest_goes_first(bench: Bench) -> None:
    bench.store.append([*episode(0), *episode(1)])
    worker = bench.worker(WorkerConfig(questions_per_turn=8))
    assert worker.turn() == 8
    assert {x.id.episode for x in bench.store.all_labels()} == {1}
    bench.store.append(episode(2))
    worker.turn()
    assert {x.id.episode for x in bench.store.all_labels()} == {1, 2} and worker.waiting == 3


def test_an_episode_waits_for_its_last_frame_and_holds_up_no_other(bench: Bench) -> None:
    *rows, last = episode(1)
    bench.store.append([*episode(0), *rows])
    worker = bench.worker()
    for _ in range(5):
        worker.turn()
    assert worker.waiting == 1 and not worker.trouble
    assert bench.labels(0, VLM_SUCCESS) and not bench.store.labels(id_of(1))
    bench.store.append([last])
    finish(worker)
    assert bench.labels(1, VLM_SUCCESS) == {None: 1.0}


def test_a_restart_asks_only_what_is_missing(bench: Bench) -> None:
    bench.store.append([*episode(0), *episode(1)])
    small = WorkerConfig(questions_per_turn=3)
    assert bench.worker(small).turn() == 3  # and then it is killed
    before = bench.asked
    finish(bench.worker(small))
    assert bench.asked - before == 2 * 8 - 3 + 4  # canary 2, new client 2: one picture, two
    numbers = [(x.id, x.author, x.label) for x in bench.store.all_labels()]
    assert len(set(numbers)) == len(numbers)

    before, rows = bench.asked, bench.store.last_seq()
    worker = bench.worker()
    assert finish(worker) == 0 and worker.waiting == 0
    assert bench.asked - before == 3 and bench.store.last_seq() == rows


def test_another_wording_is_another_author_and_asks_anew(bench: Bench, tmp_path: Path) -> None:
    bench.store.append(episode(0))
    finish(bench.worker())
    text = (Path(__file__).parents[2] / "robot_rl/reward/vlm/prompts/success.yaml").read_text()
    (tmp_path / "success.yaml").write_text(text.replace("version: 1", "version: 2"))
    finish(bench.worker(prompts=str(tmp_path)))
    authors = {x.author for x in bench.store.labels(id_of(0)) if x.kind == SUCCESS_SCORE}
    assert len(authors) == 2
    progress = [x for x in bench.store.labels(id_of(0)) if x.kind == PROGRESS]
    assert len(progress) == 3 + STEPS + 1  # those words are the same: not asked again


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_refused_question_writes_no_row_and_is_given_up(bench: Bench) -> None:
    bench.store.append([*episode(0), *episode(1)])
    worker = bench.worker(canary=False)
    worker.turn()
    bench.stand_in.faults = {"refusal": 1.0}
    finish(worker)
    assert not worker.waiting and not worker.trouble
    assert not bench.store.labels(id_of(0)) and bench.labels(1, SUCCESS_SCORE)
    bench.stand_in.faults = {}
    finish(bench.worker())  # a new start, a new try
    assert bench.labels(0, VLM_SUCCESS) == {None: 1.0}


def test_while_the_canary_fails_nothing_is_labelled(bench: Bench) -> None:
    bench.store.append(episode(0))
    bench.stand_in.lying = True
    worker = bench.worker()
    for _ in range(3):
        assert worker.turn() == 0
    assert "canary failed: order wrong" in worker.trouble and worker.waiting == 1
    assert not bench.store.all_labels() and bench.asked == 3  # asked once, then left alone
    bench.stand_in.lying = False
    bench.now_s += CONFIG.again_s + 1
    finish(worker)
    assert bench.labels(0, VLM_SUCCESS) == {None: 1.0} and not worker.trouble

    bench.stand_in.lying = True  # later: found out when it is asked again
    bench.now_s += CONFIG.canary_every_s + 1
    bench.store.append(episode(1))
    assert worker.turn() == 0 and not bench.store.labels(id_of(1))


def test_a_server_that_is_down_is_a_line_and_the_work_waits(bench: Bench) -> None:
    bench.store.append([*episode(0), *episode(1)])
    worker = bench.worker(breaker_failures=2, breaker_pause_s=60.0)
    bench.stand_in.faults = {"500": 1.0}
    assert worker.turn() == 0
    bench.now_s += 40
    trouble = worker.trouble
    assert trouble.startswith("server does not answer since 4") and worker.waiting == 2
    assert trouble.endswith("next try in 20 s")
    assert worker.turn() == 0 and not bench.store.all_labels()
    bench.stand_in.faults = {}
    bench.now_s += 100
    finish(worker)
    assert not worker.waiting and bench.labels(1, VLM_SUCCESS) == {None: 1.0}


def test_a_picture_on_which_the_server_always_fails_holds_up_no_other_episode(bench: Bench) -> None:
    def knows(data: bytes) -> Truth:
        if abs(brightness(data).progress - 0.7) < 0.005:
            raise RuntimeError("a picture that breaks it")
        return brightness(data)

    bench.stand_in.knows = knows
    bench.store.append([*episode(0), *episode(1), *episode(2, [*np.linspace(0, 0.5, 10), 0.7])])
    worker = bench.worker(WorkerConfig(questions_per_turn=8), canary=False, breaker_failures=3)
    for _ in range(8):
        worker.turn()
        bench.now_s += 40
    assert worker.waiting == 1 and bench.labels(0, VLM_SUCCESS) == {None: 1.0}
    assert len(bench.labels(2, SUCCESS_SCORE)) == 4 and not bench.labels(2, VLM_SUCCESS)
    for number in range(3, 3 + MAX_FAILED):  # it answers others: it is the picture's fault
        bench.store.append(episode(number))
        for _ in range(4):
            worker.turn()
            bench.now_s += 40
    assert not worker.waiting and bench.labels(2, VLM_SUCCESS) == {None: 0.0}


def test_a_server_that_is_down_for_long_loses_no_question(bench: Bench) -> None:
    bench.store.append(episode(0))
    worker = bench.worker(canary=False, breaker_failures=2, breaker_pause_s=5.0)
    bench.stand_in.faults = {"500": 1.0}
    for _ in range(3 * MAX_FAILED):
        assert worker.turn() == 0
        bench.now_s += 60
    bench.stand_in.faults = {}
    finish(worker)
    assert bench.labels(0, VLM_SUCCESS) == {None: 1.0} and len(bench.labels(0, PROGRESS)) == 3


def test_the_budget_stops_it_for_a_while(bench: Bench) -> None:
    bench.store.append(episode(0))
    worker = bench.worker(budget_per_hour=7, in_flight=1)
    assert worker.turn() == 3  # 4 go into canary and getting acquainted
    assert worker.trouble == "over budget, next question in 3600 s" and worker.waiting == 1
    bench.now_s += 1800
    assert worker.turn() == 0
    bench.now_s += 1801
    finish(worker)
    assert len(bench.labels(0, SUCCESS_SCORE)) == 5


def test_what_is_set_up_wrongly_is_a_line_too(bench: Bench) -> None:
    bench.store.append(episode(0))
    worker = bench.worker(model="qwen")
    for _ in range(2):
        assert worker.turn() == 0
    assert "refuses questions" in worker.trouble and "known: stand-in" in worker.trouble
    bench.stand_in.model = "qwen"
    bench.now_s += CONFIG.again_s + 1
    finish(worker)
    assert not worker.waiting and not worker.trouble


def test_a_broken_store_and_a_broken_program_do_not_reach_the_owner(
    bench: Bench, tmp_path: Path
) -> None:
    worker = bench.worker()
    bench.stand_in.knows = lambda data: 1 / 0  # type: ignore[assignment,return-value]
    bench.store.append(episode(0))
    assert worker.turn() == 0 and worker.trouble
    bench.store.close()
    bench.now_s += 1000
    assert worker.turn() == 0
    assert "store.sqlite" in worker.trouble or "closed" in worker.trouble


def test_a_third_of_everything_going_wrong_leaves_only_the_truth_in_the_store(
    bench: Bench,
) -> None:
    bench.store.append([row for n in range(4) for row in episode(n, top=0.4 + 0.2 * n)])
    faults = ("malformed", "prose", "empty", "refusal", "nan", "oversized", "429", "500")
    bench.stand_in.faults = dict.fromkeys(faults, 0.3 / len(faults))
    worker = bench.worker(WorkerConfig(tries=6), canary=False, breaker_failures=50)
    for _ in range(60):
        worker.turn()
        bench.now_s += 10
    assert not worker.waiting and sum(bench.stand_in.asked[f] for f in faults) > 10
    for n in range(4):
        truth = np.linspace(0.0, 0.4 + 0.2 * n, STEPS + 1)
        for frame, value in bench.labels(n, PROGRESS).items():
            assert frame is not None and value == pytest.approx(truth[frame], abs=0.01)
        scores = bench.labels(n, SUCCESS_SCORE)
        assert len(scores) == 5
        for step, value in scores.items():
            assert step is not None and (value > 0.5) == (truth[step + 1] >= 0.9)
        assert bench.labels(n, VLM_SUCCESS) == {None: float(n == 3)}


# -- its thread, its settings ----------------------------------------------------------------------


def test_a_thread_does_the_turns_and_ends_at_once(bench: Bench) -> None:
    bench.store.append(episode(0))
    with bench.worker(WorkerConfig(poll_s=0.02)) as worker:
        worker.start()
        deadline_s = time.monotonic() + 10
        while not bench.labels(0, VLM_SUCCESS) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert bench.labels(0, VLM_SUCCESS) == {None: 1.0}
        bench.stand_in.faults = {"hang": 1.0}
        bench.store.append(episode(1))
        while not bench.stand_in.asked["hang"] and time.monotonic() < deadline_s:
            time.sleep(0.02)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 5.0 and not bench.store.labels(id_of(1))


def test_a_camera_that_is_not_there_is_refused(bench: Bench) -> None:
    client = bench.worker()._client
    for camera in ("image/1", "state"):
        with pytest.raises(SpecError, match="nothing to show"):
            RewardWorker(bench.store, client, None, CONFIG, task=TASK, camera=camera)


@pytest.mark.parametrize(
    "words",
    [
        {"success_frames": 4, "success_needed": 2},
        {"success_frames": 2, "success_needed": 3},
        {"threshold": 1.0},
        {"period_s": -1.0},
        {"questions_per_turn": 0},
        {"poll_s": 0.0},
        {"way": "pairs"},
    ],
)
def test_settings_without_sense_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        WorkerConfig(**words)


@pytest.mark.parametrize("words", [{"fill": False}, {"period_s": 0.0}])
def test_shaping_by_progress_that_nobody_writes_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="shaping needs progress of every frame"):
        VlmRewardConfig(shaping=0.5, worker=WorkerConfig(**words))
    VlmRewardConfig(worker=WorkerConfig(**words))
    VlmRewardConfig(shaping=0.5, progress="a/model", worker=WorkerConfig(**words))


def test_a_stand_in_can_be_made_of_recorded_episodes(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="both kinds"):
        Canary((picture(0.95),), (), TASK)
    bench.store.append([*episode(0, top=0.93), *episode(1, ending=Ending.TRUNCATED, top=0.5)])
    pictures = list(recorded(bench.store, CAMERA))
    assert len(pictures) == 2 * (STEPS + 1)
    assert sum(t.success for _, t in pictures) == 5 and pictures[-1][1] == Truth(False, 0.5)
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 255, (16, 16, 3), np.uint8) for _ in range(2)]
    bench.stand_in.knows = table(zip(noise, (Truth(True, 1.0), Truth(False, 0.0)), strict=True))
    assert Canary((noise[0],), (noise[1],), TASK).check(bench.worker()._client) == ""
    assert bench.worker()._client.author(QuestionKind.SUCCESS).startswith(MODEL)
