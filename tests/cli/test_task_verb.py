"""`robot-rl task`: each way to answer, each wrong answer, and what the file that comes out does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from robot_rl.cli.main import main
from robot_rl.cli.task import teach
from robot_rl.errors import SetupError
from robot_rl.geometry import pose
from robot_rl.run.experiment import Experiment
from robot_rl.run.task_file import questions
from robot_rl.store.store import Store
from robot_rl.tasks import DescribedTask
from robot_rl.types import Pose

INSERT = ["--starts", "0.5 0 0.12", "--goal", "0.5 0 0.045"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    """A person who types these lines, then nothing more; returns the prompts they saw."""
    left, prompts = list(lines), []

    def answer(prompt: str = "") -> str:
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    return prompts


def task_of(name: str) -> DescribedTask:
    task = Experiment.compose([f"experiment={name}"], Path("configs")).task
    assert isinstance(task, DescribedTask)
    return task


def file_of(name: str) -> dict[str, Any]:
    return yaml.safe_load(Path(f"configs/experiment/{name}.yaml").read_text())


def test_options_alone_write_a_file_that_check_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "new", "my_insert", *INSERT, "--robot", "ur5e", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "written to configs/experiment/my_insert.yaml" in said
    assert main(["check", "my_insert", "--config-dir", "configs"]) == 0
    task = task_of("my_insert")
    assert (task.name, task.judge, task.max_steps) == ("my_insert", "tcp_pose", 100)
    assert task.workspace_min_m == (0.43, -0.07, 0.02)  # around start and goal; the robot's own end
    assert task.workspace_max_m == (0.57, 0.07, 0.17)
    before = Path("configs/experiment/my_insert.yaml").read_text()
    assert main(["task", "new", "my_insert", *INSERT, "--yes"]) == 2
    assert "nothing is ever overwritten" in capsys.readouterr().err
    assert Path("configs/experiment/my_insert.yaml").read_text() == before


def test_every_answer_ends_up_in_the_file() -> None:
    words = {
        "robot": "ur5e",
        "operator": "spacemouse",
        "instruction": "press the switch",
        "starts": "0.5 0 0.2 0.3; 0.45 0.05 0.2 1 0 0 0",
        "goal": "none",
        "start_spread_m": "0.01 0.01 0.01",
        "start_spread_rad": "0.05",
        "box": "0.6 0.1 0.1; 0.4 -0.1 0.3",
        "cameras": "wrist, side",
        "image_size": "64",
        "gripper": "yes",
        "gripper_width_m": "0.04",
        "wrench": "no",
        "control_hz": "20",
        "horizon_s": "8",
        "translation_m": "0.008",
        "rotation_rad": "0.05",
        "judge": "reward",
        "model": "runs/success",
        "reset": "ask",
        "clear_z_m": "0.25",
        "ask": "the switch is up",
        "scene": "none",
    }
    given = [word for key, answer in words.items() for word in (_option(key), answer)]
    assert main(["task", "new", "press", *given, "--yes"]) == 0
    experiment = Experiment.compose(["experiment=press"], Path("configs"))
    task: Any = experiment.task
    assert experiment.robot.name == "ur5e" and experiment.config["operator"]["name"] == "spacemouse"
    assert experiment.config["reward"] == {"name": "classifier", "model": "runs/success"}
    assert len(task.starts_in_base) == 2 and task.goal_in_base is None
    assert task.instruction == "press the switch" and task.images == ("wrist", "side")
    assert task.workspace_min_m == (0.4, -0.1, 0.1) and task.workspace_max_m == (0.6, 0.1, 0.3)
    assert (task.max_steps, task.control_hz, task.gripper, task.wrench) == (160, 20.0, True, False)
    assert (task.gripper_width_m, task.translation_m, task.rotation_rad) == (0.04, 0.008, 0.05)
    assert (task.reset.by, task.reset.clear_z_m) == ("ask", 0.25)
    assert task.reset.ask == "the switch is up" and task.max_yaw_rad == pytest.approx(0.65)
    unasked = {
        "tolerance_m",
        "tolerance_rad",
        "hold_steps",
        "via",
    }  # without a goal, a scripted way
    assert words.keys() | unasked == {q.key for q in questions("press", None)}


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def test_a_scripted_way_a_vlm_a_topic_and_a_scene_with_settings() -> None:
    way = ["--reset", "scripted", "--via", "0.5 0 0.1; 0.5 0 0.12"]
    scene = ["--scene", "peg_insert variant=easy hole_xy_m=0.0"]
    assert main(["task", "new", "a", *INSERT, *way, *scene, "--hold-steps", "3", "--yes"]) == 0
    task = task_of("a")
    assert len(task.reset.via_in_base) == 2 and task.staged is not None
    assert task.scene["variant"] == "easy" and "impedance" in task.scene  # the shipped YAML's
    assert file_of("a")["reward"] == {"hold_steps": 3}
    judged = ["--judge", "reward", "--cameras", "wrist", "--instruction", "put it in"]
    assert main(["task", "new", "b", *INSERT, *judged, "--yes"]) == 0
    experiment = Experiment.compose(["experiment=b"], Path("configs"))
    assert experiment.config["reward"] == {"name": "vlm", "task": "put it in"}
    assert main(["task", "new", "c", *INSERT, "--judge", "topic", *scene, "--yes"]) == 0
    assert task_of("c").judge == "topic"


def test_a_person_answers_is_asked_again_and_sees_the_file_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["ur5", "ur5e", "", "", "", "0.5 0 x", "0.5 0 0.12", "0.5 0 0.045"]
    prompts = typed(monkeypatch, *lines, *[""] * 18, "no")
    assert main(["task", "new", "typed"]) == 1
    said = capsys.readouterr().out
    assert "did you mean 'ur5e'" in said and "expected 3 numbers" in said
    assert prompts[0] == "robot [fr3]: " and prompts[-1].startswith("write this to configs/")
    assert "starts_in_base:" in said and "nothing was written" in said
    assert not Path("configs").exists()
    typed(monkeypatch, *lines, *[""] * 18, "")
    assert main(["task", "new", "typed"]) == 0
    assert task_of("typed").goal_in_base is not None


def test_a_terminal_that_ends_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "fr3")
    assert main(["task", "new", "half"]) == 2
    assert "give --operator" in capsys.readouterr().err
    assert not Path("configs").exists()


WRONG = [
    (["--starts", "0.5 0"], "--starts", "x y z"),
    (["--starts", "0.5 0 0.2 1 1 0 0"], "--starts", "unit quaternion"),
    (["--starts", "0.9 0 0.2"], "task.starts_in_base[0]", "inside the box"),
    (["--goal", "here"], "--goal", "x y z"),
    (["--box", "0.5 0 0"], "--box", "two corners"),
    (["--start-spread-m", "0.1"], "--start-spread-m", "3 numbers"),
    (["--start-spread-rad", "inf"], "--start-spread-rad", "a number"),
    (["--robot", "ur5"], "--robot", "did you mean 'ur5e'"),
    (["--operator", "gampad"], "--operator", "did you mean 'gamepad'"),
    (["--judge", "me"], "--judge", "person"),
    (["--reset", "up"], "--reset", "above"),
    (["--gripper", "maybe"], "--gripper", "yes"),
    (["--cameras", "a-b"], "--cameras", "names"),
    (["--image-size", "64"], "--image-size", "leave it out"),
    (["--cameras", "wrist", "--image-size", "0"], "--image-size", "whole number"),
    (["--control-hz", "fast"], "--control-hz", "a number"),
    (["--horizon-s", "0"], "--horizon-s", "above 0"),
    (["--horizon-s", "1000"], "task.max_steps", "300 s"),
    (["--translation-m", "0.2"], "task.translation_m", "0.025"),
    (["--tolerance-m", "-1"], "--tolerance-m", "above 0"),
    (["--hold-steps", "1.5"], "--hold-steps", "whole number"),
    (["--model", "vlm"], "--model", "leave it out"),
    (["--ask", "the part"], "--ask", "leave it out"),
    (["--via", "0.5 0 0.1"], "--via", "leave it out"),
    (["--reset", "scripted"], "--via", "give --via"),
    (["--clear-z-m", "9"], "task.reset.clear_z_m", "z 9"),
    (["--instruction", 'say "hi"'], "--instruction", "one line"),
    (["--scene", "peg_inser"], "--scene", "did you mean 'peg_insert'"),
    (["--scene", "peg_insert easy"], "--scene", "settings"),
    (["--scene", "peg_insert variannt=easy"], "variannt", "did you mean 'variant'"),
    (["--scene", "peg_insert"], "elsewhere in each episode", "hole_xy_m"),
    (["--gripper-width-m", "0.2"], "task.gripper_width_m", "stroke"),
    (["--goal", "none"], "--box", "give --box"),
    (["--from-poses", "nowhere.yaml"], "no poses in nowhere.yaml", "starts:"),
    (["--strats", "0.5 0 0.2"], "unrecognized", "did you mean '--starts'"),
]


@pytest.mark.parametrize(("words", "what", "fix"), WRONG, ids=lambda x: " ".join(x)[:40])
def test_each_wrong_answer_is_one_error_with_its_fix_and_no_file(
    words: list[str], what: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task", "new", "bad", *INSERT, *words, "--yes"]) == 2
    said = capsys.readouterr().err
    assert what in said and fix in said, said
    assert said.count("error:") == said.count("fix:") == 1
    assert not Path("configs/experiment/bad.yaml").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["task", "nww", "x"], "did you mean 'new'"),
        (["task"], "new | teach | box"),
        (["task", "new"], "NAME"),
        (["task", "new", "My-Task", *INSERT, "--yes"], "small letters"),
        (["task", "new", "peg_insert", *INSERT, "--yes"], "one that robot-rl ships"),
        (["task", "new", "x", "--yes"], "give --starts"),
        (["task", "box", "x"], "--from"),
        (["task", "box", "x", "--from", "nowhere"], "no run in 'nowhere'"),
        (["task", "box", "x", "--from", "nowhere", "--margin", "20"], "in metres"),
    ],
    ids=lambda x: " ".join(x)[:40],
)
def test_wrong_usage_is_one_error(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert what in capsys.readouterr().err


def test_poses_come_from_a_file() -> None:
    Path("poses.yaml").write_text(
        "starts: [[0.5, 0.0, 0.12], [0.5, 0.02, 0.12, 0.1]]\n"
        "goal: [0.5, 0.0, 0.045, 1.0, 0.0, 0.0, 0.0]\n"
        "corners: [[0.45, 0.06, 0.03], [0.56, -0.06, 0.16], [0.44, 0.0, 0.1]]\n"
    )
    assert main(["task", "new", "filed", "--from-poses", "poses.yaml", "--yes"]) == 0
    task = task_of("filed")
    assert len(task.starts_in_base) == 2
    assert task.workspace_min_m == (0.44, -0.06, 0.03)
    assert task.workspace_max_m == (0.56, 0.06, 0.16)


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", "start: [[0, 0, 0]]", "starts: [[1, 2]]", "starts: 3", "a: {", "goal: [a]"],
)
def test_a_file_without_poses_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("poses.yaml").write_text(text)
    assert main(["task", "new", "filed", "--from-poses", "poses.yaml", "--yes"]) == 2
    assert "no poses in poses.yaml" in capsys.readouterr().err


class Guided:
    """An arm that a person has put to one place after the other; None = it still moves."""

    def __init__(self, *places: tuple[float, float, float] | None) -> None:
        self._left = list(places)

    def __call__(self) -> Pose:
        place = self._left.pop(0)
        if place is None:
            raise SetupError("the arm is moving", fix="press Enter again")
        return pose(place, (1.0, 0.0, 0.0, 0.0))


def guided(*lines: str) -> Callable[[str], str]:
    left = list(lines)
    return lambda _: left.pop(0)


def test_teaching_takes_starts_goal_and_corners_from_the_arm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arm = Guided((0.5, 0, 0.12), None, (0.5, 0.02, 0.12), (0.5, 0, 0.045), (0.44, -0.06, 0.03),
                 (0.56, 0.06, 0.16))  # fmt: skip
    taught = teach(arm, guided("", "", "", "d", "", "", "", "d"))
    assert "the arm is moving" in capsys.readouterr().out
    assert taught["starts"].count(";") == 1 and taught["goal"].startswith(
        "0.5000 0.0000 0.0450 1.0"
    )
    assert taught["box"] == "0.4400 -0.0600 0.0300; 0.5600 0.0600 0.1600"
    alone = teach(Guided((0.5, 0, 0.12), (0.4, 0, 0)), guided("", "d", "d", "", "d"))
    assert alone.keys() == {"starts"}  # no goal, and one corner is no box


def test_teaching_that_is_broken_off_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def arm(*_: Any, **__: Any) -> Iterator[Any]:
        yield Guided((0.5, 0, 0.12))

    monkeypatch.setattr("robot_rl.cli.task.engine", _engine_with(arm))
    typed(monkeypatch, "")
    assert main(["task", "teach", "half", "--yes"]) == 2
    assert "the terminal ended" in capsys.readouterr().err
    assert not Path("configs").exists()


def test_teach_reads_the_robots_own_topic_and_writes_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    @contextlib.contextmanager
    def arm(robot: Any, **where: Any) -> Iterator[Any]:
        asked.append((robot.name, where))
        yield Guided((0.5, 0, 0.12), (0.5, 0, 0.045))

    monkeypatch.setattr("robot_rl.cli.task.engine", _engine_with(arm))
    typed(monkeypatch, "", "d", "", "d")
    words = ["task", "teach", "taught", "--robot", "ur5e", "--domain-id", "7", "--yes"]
    assert main(words) == 0
    assert asked == [("ur5e", {"domain_id": 7, "namespace": "", "topic": ""})]
    task = task_of("taught")
    assert task.starts_in_base[0].position_m == (0.5, 0.0, 0.12)
    assert task.goal_in_base is not None and task.goal_in_base.position_m[2] == 0.045


def _engine_with(arm: Any) -> Any:
    from robot_rl.cli.common import engine

    return lambda target: arm if target.startswith("robot_rl.ros") else engine(target)


def test_the_box_comes_from_what_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    scene = ["--scene", "peg_insert variant=easy hole_xy_m=0.0"]
    wide = ["--box", "0.3 -0.2 0.02; 0.7 0.2 0.4", "--clear-z-m", "0.12"]
    assert main(["task", "new", "shown", *INSERT, *scene, *wide, "--yes"]) == 0
    words = [
        "experiment=shown",
        "operator=scripted",
        "runtime=lockstep",
        "run_dir=run",
        "--config-dir",
        "configs",
    ]
    assert main(["record", *words, "--demos", "3"]) == 0
    with Store(Path("run/store.sqlite")) as store:
        assert all(e.success for e in store.episode_summaries())
    path = Path("configs/experiment/shown.yaml")
    before = path.read_text()
    capsys.readouterr()
    assert main(["task", "box", "shown", "--from", "run"]) == 0
    said = capsys.readouterr().out
    assert "workspace_min_m:" in said and "before: 0.3, -0.2, 0.02" in said
    assert path.read_text() == before
    assert main(["task", "box", "shown", "--from", "run", "--margin", "0.01", "--write"]) == 0
    task = task_of("shown")
    assert task.workspace_min_m == pytest.approx((0.47, -0.03, 0.035), abs=0.003)
    assert task.workspace_max_m == pytest.approx((0.53, 0.03, 0.13), abs=0.003)
    changed = [a for a, b in zip(before.splitlines(), path.read_text().splitlines(), strict=True)
               if a != b]  # fmt: skip
    assert len(changed) == 2  # the rest of the file is the person's own
    assert main(["check", "shown", "--config-dir", "configs"]) == 0
    assert main(["task", "box", "absent", "--from", "run"]) == 2
    assert "no task 'absent'" in capsys.readouterr().err


def test_a_run_that_shows_nothing_gives_no_box(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "new", "mine", *INSERT, "--operator", "none", "--yes"]) == 0
    Experiment.compose(["experiment=reach", "run_dir=other"]).save()
    assert main(["task", "box", "mine", "--from", "other"]) == 2
    assert "a run of a described task" in capsys.readouterr().err
    own = Experiment.compose(["experiment=mine", "run_dir=own"], Path("configs"))
    own.save()
    Store(Path("own/store.sqlite"), spec=own.spec).close()
    assert main(["task", "box", "mine", "--from", "own"]) == 2
    assert "nobody has shown the task" in capsys.readouterr().err
