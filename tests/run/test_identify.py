"""A twin whose numbers are hidden is found from what it did."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError
from robot_rl.run import identify_cameras
from robot_rl.run.evaluate import evaluate
from robot_rl.run.experiment import Experiment
from robot_rl.run.identify import DELAY, Identified, identify
from robot_rl.run.identify_cameras import NAMES, FoundCamera

HIDDEN = {"action_delay_s": 0.05, "gains": 0.8}
ALL = HIDDEN | {"joint_damping": 2.0, "armature": 1.5}


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
    return recorded(tmp_path_factory.mktemp("twin"), scene(**HIDDEN))


@pytest.fixture(scope="module")
def found(twin: Path) -> Identified:
    return identify(twin, tuple(HIDDEN))


def test_delay_and_gains_come_out_as_they_were_hidden(found: Identified) -> None:
    values = {one.name: one for one in found.found}
    assert values.keys() == HIDDEN.keys()
    assert values[DELAY].value == pytest.approx(0.05, abs=0.005)
    assert values["gains"].value == pytest.approx(HIDDEN["gains"], rel=0.02)
    for one in values.values():
        assert one.low <= one.value <= one.high


def test_the_gap_closes(found: Identified) -> None:
    assert found.rmse_before_m > 2e-3
    assert found.rmse_after_m < 1e-4
    assert found.after < 0.01 * found.before


def test_the_nominal_arm_is_found_to_be_nominal(tmp_path: Path) -> None:
    result = identify(recorded(tmp_path), (DELAY, "gains"))
    values = {one.name: one.value for one in result.found}
    assert values[DELAY] == 0.0
    assert values["gains"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("noise_rad", [0.0, 0.0003])
def test_four_quantities_from_half_a_minute(noise_rad: float, tmp_path: Path) -> None:
    words = scene(**ALL, **({"encoder_noise_rad": noise_rad} if noise_rad else {}))
    result = identify(recorded(tmp_path, words, demos=40), tuple(ALL))
    values = {one.name: one.value for one in result.found}
    assert values[DELAY] == pytest.approx(ALL[DELAY], abs=0.0051)
    for name in ("gains", "joint_damping", "armature"):
        assert values[name] == pytest.approx(ALL[name], rel=0.1)


def test_the_verb_writes_a_task_that_can_be_composed_and_replayed(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "task" / "my_twin.yaml", tmp_path / "found.json"
    words = ["identify", str(twin), "--fit", "action_delay_s", "--out", str(out)]
    assert main([*words, "--json", str(figures)]) == 0
    said = capsys.readouterr().out
    assert "action_delay_s" in said and "the position is off by" in said
    ranges = yaml.safe_load(out.read_text())["ranges"]
    assert json.loads(figures.read_text())["ranges"] == ranges
    experiment = Experiment.compose(["experiment=reach", "task=my_twin"], tmp_path)
    assert experiment.task.drawn_ranges == {DELAY: tuple(ranges[DELAY])}
    assert main(words) == 2  # nothing is overwritten
    assert "is there already" in capsys.readouterr().err


def test_replay_shows_the_gap_in_another_scene(
    twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offs = []
    for words in ([], ["task.ranges={}"]):
        main(["replay", str(twin), *words])
        text = capsys.readouterr().out
        offs.append(float(re.findall(r"off by ([\d.]+) mm at most", text)[0]))
    assert offs[0] == 0.0 and offs[1] > 1.0


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


@pytest.mark.gl
def test_a_camera_is_found_from_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identify_cameras, "PICTURES", 25)
    hidden = {"camera_place_m_x/wrist": 0.01, "camera_turn_rad_y/wrist": -0.02}
    words = scene(**hidden, brightness=0.9, gains=0.8)
    images = ("task.images=[wrist]", "task.image_size=48")
    run = recorded(tmp_path, words, *images, "experiment=lift", demos=3)
    result = identify(run, ("gains",), cameras=True)
    (wrist,) = result.cameras
    place_mm, turn_deg = off_by(wrist, hidden)
    assert place_mm < 2.0 and turn_deg < 0.3, wrist
    assert wrist.after < 0.2 * wrist.before
    found = result.ranges()
    assert found["camera_place_m_x/wrist"][0] == pytest.approx(0.01, abs=0.002)
    made = Experiment.compose(["experiment=lift", *images, f"task.ranges={flow(found)}"])
    made.check()


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
