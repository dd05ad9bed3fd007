"""A twin whose numbers are hidden is found from what it did."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError
from robot_rl.run import identify_cameras
from robot_rl.run.evaluate import evaluate
from robot_rl.run.experiment import Experiment
from robot_rl.run.identify import DELAY, identify
from robot_rl.run.identify_cameras import NAMES, FoundCamera
from robot_rl.store.scenes import SCENES, Scenes

RANGES = {
    "gains": (0.7, 1.4),
    "joint_damping": (0.5, 2.5),
    "joint_friction": (0.005, 0.04),
    "armature": (0.6, 2.0),
}


def hidden(seed: int) -> dict[str, float]:
    """A twin at random; its delay is not a whole number of the ticks on which delays act."""
    rng = np.random.default_rng(seed)
    drawn = {name: round(float(rng.uniform(*ends)), 4) for name, ends in RANGES.items()}
    return {DELAY: round(float(rng.uniform(0.0, 0.09)), 4)} | drawn


def scene(**values: float) -> str:
    return "task.ranges={" + ", ".join(f"{n}: [{v}, {v}]" for n, v in values.items()) + "}"


def recorded(folder: Path, *words: str, demos: int = 9) -> Path:
    run = folder / "run"
    first = () if any(word.startswith("experiment=") for word in words) else ("experiment=reach",)
    words = (*first, "runtime=lockstep", f"run_dir={run}", *words)
    assert main(["record", *words, "--demos", str(demos)]) == 0
    return run


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("twin"), scene(**hidden(1)))


@pytest.fixture(scope="module")
def found(twin: Path) -> tuple[dict[str, Any], Path, str]:
    """What the verb found of the twin: as JSON, the task that it wrote, and what it said."""
    out, figures, said = twin / "task" / "my_twin.yaml", twin / "found.json", io.StringIO()
    with contextlib.redirect_stdout(said):
        words = ["identify", str(twin), "--seconds", "5", "--out", str(out), "--json", str(figures)]
        assert main(words) == 0
    return json.loads(figures.read_text()), out, said.getvalue()


def check(values: dict[str, float], known: dict[str, float]) -> None:
    """What identify promises: delay to 5 ms, the others to a tenth."""
    assert values[DELAY] == pytest.approx(known[DELAY], abs=0.005)
    for name in RANGES:
        assert values[name] == pytest.approx(known[name], rel=0.1), name


def test_what_was_hidden_is_found(found: tuple[dict[str, Any], Path, str]) -> None:
    values = {one["name"]: one["value"] for one in found[0]["found"]}
    assert values.keys() == {DELAY, *RANGES}
    check(values, hidden(1))
    for one in found[0]["found"]:
        assert one["low"] <= one["value"] <= one["high"] < 1.3 * one["value"], one


def test_the_gap_closes(found: tuple[dict[str, Any], Path, str]) -> None:
    before, after = found[0]["before"], found[0]["after"]
    assert before["position_m"] > 2e-3 and after["position_m"] < 1e-4
    assert before["joints_rad"] > 2e-3 and after["joints_rad"] < 1e-4
    assert after["observation"] < 0.01 * before["observation"]
    said = re.search(r"joints +off by ([\d.]+) degrees before, (\S+) degrees after", found[2])
    assert said is not None, found[2]
    assert float(said[1]) == pytest.approx(np.degrees(before["joints_rad"]), rel=0.01)


def test_the_joints_of_the_gap_are_those_that_were_recorded(tmp_path: Path) -> None:
    """The angles that the run kept, moved by 0.1 rad, are what is left of a nominal arm."""
    run = recorded(tmp_path, demos=9)
    log = run / SCENES
    head, _, rows = log.read_bytes().partition(b"\n")
    moved = np.frombuffer(rows, Scenes(log)._read().dtype).copy()
    moved["values"][:, 2] += 0.1
    log.write_bytes(head + b"\n" + moved.tobytes())
    result = identify(run, ("joint_friction",), seconds=5.0)
    joints = json.loads(head)["joints"]
    assert result.before.joints_rad == pytest.approx(0.1 / np.sqrt(joints), rel=1e-3)
    assert result.before.position_m == pytest.approx(0.0, abs=1e-6)


def test_a_run_without_joints_tells_the_rest(tmp_path: Path) -> None:
    run = recorded(tmp_path, scene(joint_friction=0.01))
    (run / SCENES).unlink()
    result = identify(run, ("joint_friction",), seconds=5.0)
    assert np.isnan(result.before.joints_rad) and len(result.gaps()) == 2
    assert result.found[0].value == pytest.approx(0.01, rel=0.02)


def test_the_nominal_arm_is_found_to_be_nominal(tmp_path: Path) -> None:
    result = identify(recorded(tmp_path), (DELAY, "joint_friction"), seconds=5.0)
    values = {one.name: one.value for one in result.found}
    assert values[DELAY] == 0.0
    assert values["joint_friction"] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("seed", "noise_rad"), [(1, 0.0), (2, 0.0003), (3, 0.001)])
def test_a_twin_at_random_from_a_minute(seed: int, noise_rad: float, tmp_path: Path) -> None:
    known = hidden(seed)
    words = scene(**known, encoder_noise_rad=noise_rad)
    result = identify(recorded(tmp_path, words, demos=90))
    assert result.seconds >= 55.0
    check({one.name: one.value for one in result.found}, known)


@pytest.mark.slow
def test_friction_of_surfaces_is_found_where_something_slides(tmp_path: Path) -> None:
    run = recorded(tmp_path, "experiment=peg_insert", scene(friction=0.6), demos=5)
    (friction,) = identify(run, ("friction",)).found
    assert friction.value == pytest.approx(0.6, rel=0.1)


def test_the_verb_writes_a_task_that_can_be_composed_and_replayed(
    found: tuple[dict[str, Any], Path, str], twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, out, said = found
    ranges = yaml.safe_load(out.read_text())["ranges"]
    assert figures["ranges"] == ranges and DELAY in said
    experiment = Experiment.compose(["experiment=reach", "task=my_twin"], twin)
    task: Any = experiment.task
    assert task.drawn_ranges == {name: tuple(ends) for name, ends in ranges.items()}
    assert main(["identify", str(twin), "--out", str(out)]) == 2  # nothing is overwritten
    assert "is there already" in capsys.readouterr().err


def test_what_does_not_matter_is_told_to_be_unknown(
    twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was touched, so nothing is known of the surfaces' friction."""
    assert main(["identify", str(twin), "--fit", "friction", "--seconds", "5"]) == 0
    said = capsys.readouterr().out
    assert "the gap hardly closed" in said
    low, high = re.findall(r"friction .*interval ([\d.]+) to ([\d.]+)", said)[0]
    assert float(low) < 0.25 and float(high) > 4.0


def test_replay_shows_the_gap_in_another_scene(
    twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", str(twin), "task.ranges={}"])
    text = capsys.readouterr().out
    other, own = re.findall(r"off by ([\d.]+) mm at most.*run's scene: ([\d.]+) mm", text)[0]
    assert float(own) == 0.0 and float(other) > 1.0
    assert re.search(rf"off by {other} mm at most .*; in the run's scene by 0.00 mm", text)


def test_a_replay_has_the_noise_and_the_jitter_that_were_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path, "task.randomize=real", demos=2)
    main(["replay", str(run), "--all"])
    assert set(re.findall(r"off by ([\d.]+) mm at most", capsys.readouterr().out)) == {"0.00"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fit", "gain"], "did you mean 'gains'"),
        (["--fit", "camera_focal"], "cannot be fitted"),
        (["--fit", "gains,gains"], "named twice"),
        (["--seconds", "1"], "between 5 and 3600"),
        (["--out", "twin.json"], ".yaml"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: list[str], told: str, twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["identify", str(twin), *words]) == 2
    assert told in capsys.readouterr().err


def test_too_little_motion_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identify", str(recorded(tmp_path, demos=1))]) == 2
    assert "too little motion" in capsys.readouterr().err


def test_an_evaluation_in_a_scene_of_its_own_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        evaluate(tmp_path, scene=["task.randomize=real"])


# --- cameras --------------------------------------------------------------------------------------


def off_by(found: FoundCamera, hidden: dict[str, float]) -> tuple[float, float]:
    """How far a camera's place (mm) and direction (degrees) are from what was hidden."""
    known = np.array([hidden.get(f"{name}/{found.name}", 0.0) for name in NAMES])
    off = np.array((*found.place_m, *found.turn_rad)) - known
    return 1e3 * float(np.linalg.norm(off[:3])), float(np.degrees(np.linalg.norm(off[3:])))


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a camera that is near."""
    monkeypatch.setattr(identify_cameras, "PICTURES", 18)
    monkeypatch.setattr(identify_cameras, "LOOKS", identify_cameras.LOOKS[1:])


@pytest.mark.gl
@pytest.mark.slow
@pytest.mark.usefixtures("few_pictures")
def test_a_camera_is_found_from_what_it_saw(tmp_path: Path) -> None:
    hidden = {"camera_place_m_x/wrist": 0.01, "camera_turn_rad_y/wrist": -0.02}
    words = scene(**hidden, brightness=0.9, gains=0.8)
    images = ("task.images=[wrist]", "task.image_size=48")
    run = recorded(tmp_path, words, *images, "experiment=lift", demos=3)
    result = identify(run, ("gains",), cameras=True, seconds=5.0)
    (wrist,) = result.cameras
    place_mm, turn_deg = off_by(wrist, hidden)
    assert place_mm < 2.0 and turn_deg < 0.4, wrist  # of few pictures; all are in the slow test
    assert wrist.after < 0.2 * wrist.before and not wrist.calibrated


@pytest.mark.gl
@pytest.mark.usefixtures("few_pictures")
def test_a_camera_at_the_hand_is_found_although_the_arm_is_not_quite_known(
    tmp_path: Path,
) -> None:
    """The actions are played on the measured poses: errors of the arm do not add up."""
    hidden = {"camera_place_m_x/wrist": 0.01}
    images = ("task.images=[wrist]", "task.image_size=48")
    run = recorded(tmp_path, scene(**hidden, gains=0.6), *images, "experiment=lift", demos=3)
    result = identify(run, ("joint_damping",), cameras=True, seconds=5.0)
    (wrist,) = result.cameras
    place_mm, turn_deg = off_by(wrist, hidden)
    assert place_mm < 1.5 and turn_deg < 0.6, wrist  # 0.6 mm, 0.4 degrees; else 3.0 and 0.9
    found = result.ranges()
    assert found["camera_place_m_x/wrist"][0] == pytest.approx(0.01, abs=0.002)
    Experiment.compose(["experiment=lift", *images, f"task.ranges={flow(found)}"]).check()


@pytest.mark.gl
@pytest.mark.slow
@pytest.mark.usefixtures("few_pictures")
def test_what_is_found_of_a_calibrated_camera_comes_on_top_of_its_calibration(
    tmp_path: Path,
) -> None:
    """The twin has the same calibration, and would count it twice otherwise."""
    pose = "cameras.wrist.pose=[0.068,0.004,-0.065,-0.166,-0.166,0.687,0.687]"
    images = ("task.images=[wrist]", "task.image_size=48", "cameras.wrist.mount=hand", pose)
    hidden = {"camera_place_m_x/wrist": 0.01}
    run = recorded(tmp_path, scene(**hidden), *images, "experiment=lift", demos=3)
    said: list[str] = []
    (wrist,) = identify(run, ("gains",), cameras=True, seconds=5.0, tell=said.append).cameras
    assert wrist.calibrated and "from where cameras.wrist.pose has it" in said[-1]
    place_mm, turn_deg = off_by(wrist, hidden)
    assert place_mm < 2.0 and turn_deg < 0.3, wrist


def flow(ranges: dict[str, list[float]]) -> str:
    """As `identify` prints it."""
    return "{" + ", ".join(f"{name}: {ends}" for name, ends in ranges.items()) + "}"


@pytest.mark.gl
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_cameras_within_2_mm_and_a_third_of_a_degree(tmp_path: Path) -> None:
    hidden = {
        "camera_place_m_x/wrist": 0.012,
        "camera_place_m_y/wrist": -0.008,
        "camera_turn_rad_z/wrist": 0.02,
        "camera_place_m_z/front": 0.015,
        "camera_turn_rad_x/front": -0.025,
    }
    words = scene(**hidden, brightness=0.9, action_delay_s=0.03, gains=0.85)
    run = recorded(tmp_path, words, "experiment=lift_pixels", demos=20)
    for camera in identify(run, (DELAY, "gains"), cameras=True).cameras:
        place_mm, turn_deg = off_by(camera, hidden)
        assert place_mm < 2.0 and turn_deg < 0.3, camera


def test_a_task_without_cameras_has_none_to_find(twin: Path) -> None:
    with pytest.raises(ConfigError, match="has no cameras"):
        identify(twin, (DELAY,), cameras=True)
