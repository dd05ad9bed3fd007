"""The stand-in person sees what is in a picture, and what it presses shows the task."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.person import TASKS, bench, figures_of, sitting
from robot_rl.bench.person.eyes import ALONG, Sight, Thing, see
from robot_rl.bench.person.hands import Hands
from robot_rl.bench.person.mind import ABOVE, ASIDE, DRIVE, SLOW, SLOWER, Act, Mind, Words
from robot_rl.bench.person.sitting import Sitting, age_of, picture_in, tip_of, words_of
from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.geometry import quat_to_matrix
from robot_rl.run.experiment import Experiment
from robot_rl.tasks.common import ALONG_TOOL

AXES = {"KeyW": (0, 1), "KeyS": (0, -1), "KeyD": (1, 1), "KeyA": (1, -1),
        "KeyQ": (2, 1), "KeyE": (2, -1), "KeyL": (5, 1), "KeyJ": (5, -1)}  # fmt: skip
REACTION_TICKS = 3
SCALE = 0.5 / math.tan(math.radians(22.5))  # heights of the picture per unit of slope


class Table:
    """The simulator as the page shows it, without page: the view along the tool, and gauges.

    Keys move the tool as they do at the page while that view is the large one.
    """

    def __init__(self, name: str, seed: int) -> None:
        pytest.importorskip("mujoco", reason="the sim extra is not installed")
        from robot_rl_sim.envs import make_env
        from robot_rl_sim.mirror import Mirror

        self.env = make_env("lift") if name == "lift" else make_env("peg_insert", variant="easy")
        self.env.reset(seed=seed)
        self.task: Any = self.env.task
        self._name, self._mirror = name, Mirror(self.task)
        self.ticks, self.success = 0, False

    @property
    def state(self) -> Any:
        return self.env.robot.read()

    def look(self) -> tuple[Words, Sight]:
        speed = 1e3 * float(np.linalg.norm(self.state.tcp_twist_in_base[:3]))
        force = float(np.linalg.norm(self.state.wrench_in_tcp[:3]))
        words = Words(
            word="You are driving", seat="you have the seat", view=ALONG, views=3,
            force_n=force, speed_mm_s=speed, gripper_mm=1e3 * self.state.gripper_width_m,
        )  # fmt: skip
        picture = self._mirror.picture(self.state, ALONG_TOOL)
        return words, see(picture, ALONG, self._name, (0.0, 0.0))

    def press(self, keys: Mapping[str, float | None], ticks: int = 0) -> None:
        """Hold keys for as long as is meant, or for so many ticks those that are held on."""
        left = {k: max(round(10 * s), 1) for k, s in keys.items() if s is not None}
        on = [k for k, s in keys.items() if s is None]
        for i in range(max([ticks, *left.values()])):
            held = {*on, *(k for k, n in left.items() if i < n)}
            action = np.zeros(self.task.spec.action.size, np.float32)
            for key in held & AXES.keys():
                axis, sign = AXES[key]
                action[axis] += sign * (SLOWER if SLOW in held else 1.0)
            if self.task.uses_gripper:
                action[-1] = ("KeyG" in held) - ("KeyC" in held)
            if DRIVE not in held:
                action[:] = 0.0
            _, _, over, late, info = self.env.step(action)
            self.ticks += 1
            self.success |= info["success"]
            if over or late:
                return

    def close(self) -> None:
        self._mirror.close()
        self.env.close()


def show(table: Table, mind: Mind) -> None:
    """One demonstration, as long as the task lets it last."""
    while not table.success and table.ticks < table.task.max_steps:
        words, sight = table.look()
        act = mind.next(words, sight)
        on = {key: None for key, held_s in act.keys.items() if held_s is None}
        table.press(act.keys)
        table.press(on, REACTION_TICKS + 2 * act.settle)


@pytest.mark.parametrize("task", TASKS)
def test_it_shows_the_task_in_the_simulator_within_the_time_of_an_episode(task: str) -> None:
    mind, shown = Mind(task), 0
    for seed in range(6):
        table = Table(task, seed)
        try:
            mind.next(Words(word="Resetting", seat="you have the seat"), Sight(None, None))
            show(table, mind)
        finally:
            table.close()
        shown += table.success
    assert shown >= 4


@pytest.mark.parametrize("task", TASKS)
def test_it_sees_how_far_the_target_is_from_the_tip(task: str) -> None:
    for seed in range(4):
        table = Table(task, seed)
        try:
            _, sight = table.look()
            tcp = table.state.tcp_in_base
            turn = quat_to_matrix(tcp.quaternion_xyzw)
            name, top_m = ("cube", 0.02) if task == "lift" else ("hole", 0.0)
            target = table.state.objects[name]
            top = np.array((0.0, 0.0, top_m))
            way = turn.T @ (target.position_m + top - tcp.position_m)
            expected = SCALE * np.array((way[1], way[0])) / (0.25 + way[2])
            assert sight.error is not None and sight.target is not None
            assert np.allclose(sight.error, expected, atol=0.012)
            x = turn.T @ quat_to_matrix(target.quaternion_xyzw)[:, 0]
            turned = math.atan2(-x[1], x[0])
            off = sight.target.turn_rad - turned
            assert abs(off - math.pi / 2 * round(off / (math.pi / 2))) < 0.06
        finally:
            table.close()


def test_where_there_is_nothing_of_that_colour_nothing_is_seen() -> None:
    grey = np.full((480, 640, 3), 60, np.uint8)
    assert see(grey, ALONG, "lift", (0.0, 0.0)).error is None
    act = Mind("lift").next(driving(), Sight(None, (0.0, 0.0)))
    assert act.keys == {DRIVE: None, "KeyE": 0.3}


def driving(**more: Any) -> Words:
    return Words(
        **{
            "word": "You are driving",
            "seat": "you have the seat",
            "view": ALONG,
            "views": 3,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (driving(acknowledge=True, go=True), ["KeyY"]),
        (driving(go=True), ["KeyR"]),
        (driving(seat="the seat is free"), ["KeyT"]),
        (driving(seat="operator 2 has the seat"), ["KeyT"]),
        (driving(asks="Is the cube on the mat?"), ["KeyF"]),
        (driving(word="Resetting"), []),
        (driving(word="Holding", reason="let go of everything: 'drive' is held"), []),
        (driving(view="overview"), ["KeyP"]),
    ],
)
def test_it_does_first_what_the_page_asks_for(words: Words, keys: list[str]) -> None:
    assert list(Mind("lift").next(words, Sight(None, None)).keys) == keys


class Keyboard:
    """Remembers what goes down and up."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def down(self, key: str) -> None:
        self.said.append(("down", key))

    def up(self, key: str) -> None:
        self.said.append(("up", key))


def test_hands_hold_what_is_meant_and_slip_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("robot_rl.bench.person.hands.time.sleep", slept.append)
    keyboard = Keyboard()
    hands = Hands(keyboard, random.Random(1))
    for _ in range(300):
        hands.act({DRIVE: None, "KeyW": 0.2})
    downs = [key for what, key in keyboard.said if what == "down"]
    assert downs.count(DRIVE) == 1 and downs.count("KeyW") == 300
    assert 3 <= hands.slips <= 20 and len(downs) == 301 + hands.slips
    hands.let_go()
    assert sorted(k for w, k in keyboard.said if w == "up") == sorted(downs)


def test_what_is_read_on_the_page() -> None:
    said = dict.fromkeys(
        ("word", "reason", "advice", "result", "seat", "device", "asks", "view"), ""
    )
    said |= {"force": "13.6 N", "speed": "-", "gripper": "39 mm", "go": True, "acknowledge": False}
    words = words_of(said | {"views": 3})
    assert (words.force_n, words.speed_mm_s, words.gripper_mm, words.go) == (13.6, 0.0, 39.0, True)
    assert age_of("412 ms") == pytest.approx(0.412) and age_of("1.3 s old") == pytest.approx(1.3)
    assert age_of("no picture") == math.inf


def test_the_tip_is_where_the_arrows_begin() -> None:
    box = [100.0, 50.0, 700.0, 480.0]  # a black strip of 30 px on either side
    assert picture_in(box) == (130.0, 50.0, 640.0, 480.0)
    w, d = [450.0, 228.0, 0.0, 62.0], [450.0, 290.0, 62.0, 0.0]
    assert tip_of([w, d], box) == pytest.approx((0.0, 0.0))
    assert tip_of([w, None], box) is None


def test_a_median_counts_sittings_that_did_not_get_there() -> None:
    def sitting(*at_s: float) -> Sitting:
        return Sitting("lift", 0, demos=len(at_s), failures=3, at_s=list(at_s))

    most = figures_of("lift", [sitting(9.0, 20.0), sitting(30.0), sitting(12.0, 50.0)], 2)
    assert most["lift/demo_1_s_p50"] == 12.0 and most["lift/demo_2_s_p50"] == 50.0
    assert math.isnan(most["lift/demo_2_s_max"]) and most["lift/failures"] == 3.0
    few = figures_of("lift", [sitting(9.0), sitting()], 2)
    assert math.isnan(few["lift/demo_1_s_p50"])


def test_the_figures_stand_beside_their_targets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def measure(seconds: float, **options: Any) -> dict[str, float]:
        asked.update(options)
        return {"lift/demo_1_s_p50": 119.0, "lift/demo_10_s_p50": math.nan}

    monkeypatch.setattr("robot_rl.cli.bench.BENCHES", {"person": measure})
    path = tmp_path / "p.json"
    assert main(["bench", "person", "--tasks", "lift", "--seeds", "2", "--json", str(path)]) == 0
    assert asked["tasks"] == "lift" and asked["seeds"] == 2 and asked["demos"] == 10
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["lift/demo_1_s_p50"].endswith("120  ok")
    assert lines["lift/demo_10_s_p50"].endswith("MISSED")
    assert json.loads(path.read_text())["targets"]["lift/demo_1_s_p50"]["met"] is True


def test_a_task_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no task 'lifft'"):
        bench(tasks="lifft")


Started = tuple[list[str], dict[str, Any]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """What is started instead of the run, which leaves its link at once."""
    found: list[Started] = []

    def popen(command: list[str], **how: Any) -> Any:
        found.append((command, how))
        run_dir = next(Path(w.partition("=")[2]) for w in command if w.startswith("run_dir="))
        run_dir.mkdir()
        (run_dir / "link").touch()
        return SimpleNamespace(poll=lambda: None, terminate=lambda: None, wait=lambda _: None)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(sitting, "link_file", lambda run_dir: run_dir / "link")
    return found


def test_its_run_is_apart_from_other_runs(tmp_path: Path, started: list[Started]) -> None:
    """The script at a page lets go on whatever waits: it must not hear of a real arm."""
    with sitting._recording("lift", 0, 1, tmp_path, None):
        ((command, _),) = started
    words = [w for w in command if "=" in w and not w.startswith("--")]
    own, usual = Experiment.compose(words), Experiment.compose(words[:2])
    assert own.ros.domain_id != usual.ros.domain_id and own.link.port != usual.link.port


def test_another_commit_is_used_whole(
    tmp_path: Path, started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is started in the other checkout: its folders must be found from there, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/opt/ros/somewhere")
    with sitting._recording("lift", 0, 1, tmp_path, Path("old")):
        ((_, how),) = started
    old = tmp_path / "old"
    folders = [str(old), str(old / "sim"), str(old / "hardware"), "/opt/ros/somewhere"]
    assert how["env"]["PYTHONPATH"].split(os.pathsep) == folders
    assert how["cwd"] == old


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_that_dies_is_no_sitting(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([None, None])
    run = SimpleNamespace(poll=lambda: next(codes, code), returncode=code)
    page = SimpleNamespace(goto=lambda _: None, keyboard=None)
    running = SimpleNamespace(new_context=lambda **_: SimpleNamespace(new_page=lambda: page))
    monkeypatch.setattr(sitting, "_recording", lambda *_: nullcontext(run))
    monkeypatch.setattr(sitting, "browser", lambda: nullcontext(running))
    monkeypatch.setattr(sitting, "_prefer_browser", lambda: True)
    monkeypatch.setattr(sitting._Person, "turn", lambda _: None)
    monkeypatch.setattr(sitting, "link_file", lambda _: tmp_path / "link")
    (tmp_path / "link").touch()
    (tmp_path / "run").mkdir()
    if code:
        with pytest.raises(RobotRLError, match="exit code 1"):
            sitting.sit("lift", 0, tmp_path, demos=1, limit_s=60.0)
        return
    sitting.sit("lift", 0, tmp_path, demos=1, limit_s=60.0)
    assert json.loads((tmp_path / "sitting.json").read_text())["browser_first"] is True


def test_from_aside_it_learns_by_pressing_where_keys_lead() -> None:
    """As on the page before it had views: W leads towards the person, D to the left and down."""
    truth = np.array(((-0.09, 0.08), (-0.03, -0.03)))  # columns: what a second of D, of W moves
    mind, error = Mind("peg_insert_easy"), np.array((0.03, -0.06))
    presses, act = 0, Act()
    while act.why != "over it: down" and presses < 40:
        block = Thing((float(error[0]), float(error[1])), 0.0, 0.08, (0.0, 0.0))
        act = mind.next(driving(view="overview", views=1), Sight(block, (0.0, 0.0), "overview"))
        share = SLOWER if SLOW in act.keys else 1.0
        held_s = [
            share * ((act.keys.get(more) or 0.0) - (act.keys.get(less) or 0.0))
            for less, more in (("KeyA", "KeyD"), ("KeyS", "KeyW"))
        ]
        error, presses = error - truth @ held_s, presses + 1
    assert 4 < presses < 40
    assert abs(error[0]) <= ASIDE and abs(error[1] + ABOVE) <= ASIDE  # it hangs above
