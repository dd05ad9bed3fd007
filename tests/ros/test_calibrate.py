"""`robot-rl calibrate` beside a double: it starts the graph, moves through the gate, and writes."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")
pytest.importorskip("cv2", reason="OpenCV is not installed")

from geometry_msgs.msg import TwistStamped
from std_msgs.msg import Bool

from robot_rl.cli.main import main
from robot_rl.geometry import pose
from robot_rl.robots.ur5e import Ur5e
from robot_rl.ros.runtime import visitor
from robot_rl.tasks.reach import ReachTask
from robot_rl.types import Pose
from robot_rl_sim.robot import MujocoRobot
from tests.support.boards import apart, camera_in_mount
from tests.support.ros import new_domain

pytestmark = [pytest.mark.ros, pytest.mark.gl, pytest.mark.slow, pytest.mark.alone]

log = logging.getLogger(__name__)

MINE = """# @package _global_
# what I want to keep
defaults:
  - override /task: reach
name: mine
task:
  images: [wrist, front]
  image_size: 64
cameras:
  wrist:
    width: 640  # as it is
"""


@pytest.fixture(scope="module")
def config_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's own experiment; `camera` writes into it what `time` needs."""
    folder = tmp_path_factory.mktemp("configs")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "mine.yaml").write_text(MINE)
    return folder


def truth(camera: str, mount: str) -> Pose:
    """Where the double's camera is."""
    return camera_in_mount(MujocoRobot(ReachTask().with_robot(Ur5e()), Ur5e()), camera, mount)


def known_wrist() -> list[str]:
    """The same as words."""
    x = truth("wrist", "hand")
    numbers = ",".join(f"{v:.6f}" for v in (*x.position_m, *x.quaternion_xyzw))
    return ["cameras.wrist.mount=hand", f"cameras.wrist.pose=[{numbers}]"]


def calibrate(run: Path, config_dir: Path, *words: str) -> dict[str, Any]:
    """Run the verb on a double of a UR5e; what it has found."""
    found = run.with_suffix(".json")
    given = ["robot=ur5e_fzi", "double=true"]
    given += [] if any("operator=" in w for w in words) else ["operator=none"]
    given += [] if any("domain_id=" in w for w in words) else [f"ros.domain_id={new_domain()}"]
    given += [f"run_dir={run}", "--config-dir", str(config_dir), "--yes", "--json", str(found)]
    code = main(["calibrate", *words, *given])
    assert code in (0, 1), f"exit code {code}"
    return json.loads(found.read_text())


@pytest.mark.parametrize(("camera", "mount"), [("wrist", "hand"), ("front", "beside")])
def test_the_camera_is_where_the_double_has_it(
    camera: str, mount: str, config_dir: Path, tmp_path: Path
) -> None:
    words = ["camera", camera, "--mount", mount, "experiment=mine", "--auto"]
    found = calibrate(tmp_path / "run", config_dir, *words)
    off_m, off_rad = apart(pose(found["pose"][:3], found["pose"][3:]), truth(camera, mount))
    log.info("%s: off by %.3f mm, %.4f degrees", mount, 1e3 * off_m, math.degrees(off_rad))
    assert off_m < 0.001 and math.degrees(off_rad) < 0.1
    assert found["rms_px"] < 0.5 and len(found["used"]) >= 10
    text = (config_dir / "experiment" / "mine.yaml").read_text()
    assert "# what I want to keep" in text and "width: 640  # as it is" in text
    kept = yaml.safe_load(text)["cameras"][camera]
    assert kept["mount"] == mount and kept["pose"] == found["pose"]
    folder = tmp_path / "run" / "calibration"
    assert (folder / f"{camera}_tcp.png").is_file() and (folder / f"{camera}_01.png").is_file()


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.08])
def test_the_lateness_is_what_the_double_was_told(
    delay_s: float, config_dir: Path, tmp_path: Path
) -> None:
    fault = f"ros.nodes.sim.fault='{{\"camera_delay_s\": {delay_s}}}'"
    found = calibrate(tmp_path / "run", config_dir, "time", "wrist", "experiment=mine", "--auto",
                      fault, *known_wrist())  # fmt: skip
    log.info("%.0f ms: found %.1f ms", 1e3 * delay_s, 1e3 * found["latency_s"])
    assert abs(found["latency_s"] - delay_s) < 0.005
    assert 0.0 < found["arm_behind_targets_s"] < 0.4


def test_the_ends_are_those_of_the_double(config_dir: Path, tmp_path: Path) -> None:
    fault = "ros.nodes.sim.fault='{\"gripper_ends\": [0.03, 0.74]}'"
    found = calibrate(tmp_path / "run", config_dir, "gripper", "task=lift", fault)
    assert np.allclose((found["opened_joints"], found["closed_joints"]), (0.03, 0.74), atol=0.005)


class Hand:
    """A person who swings the arm with a twist device, from a thread of their own."""

    def __init__(self, domain_id: int) -> None:
        self._domain_id, self._done = domain_id, threading.Event()
        self._thread = threading.Thread(target=self._swing, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _swing(self) -> None:
        with visitor("hand", self._domain_id) as node:
            twists = node.create_publisher(TwistStamped, "teleop/twist", 1)
            enable = node.create_publisher(Bool, "teleop/enable", 1)
            began_s = time.monotonic()
            while not self._done.wait(0.02):
                at_s = time.monotonic() - began_s
                holds = at_s % 4.0 > 1.0  # lets go of everything now and then: at rest first
                enable.publish(Bool(data=holds))
                message = TwistStamped()
                message.header.frame_id = "base"
                message.twist.linear.y = 0.06 * math.cos(math.pi * at_s) if holds else 0.0
                twists.publish(message)


def test_a_person_may_swing_the_arm(config_dir: Path, tmp_path: Path) -> None:
    domain_id = new_domain()
    words = ["time", "wrist", "experiment=mine", "operator=twist", f"ros.domain_id={domain_id}",
             "--seconds", "14", *known_wrist()]  # fmt: skip
    with Hand(domain_id):
        found = calibrate(tmp_path / "run", config_dir, *words)
    log.info("a person: found %.1f ms", 1e3 * found["latency_s"])
    assert abs(found["latency_s"]) < 0.005 and "arm_behind_targets_s" not in found


def test_nothing_moves_before_a_person_agrees(
    config_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One motion is skipped, then it is enough; each was asked about."""
    answers, asked = iter(["s", "q", "stay"]), list[str]()

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("builtins.input", answer)
    given = ["robot=ur5e_fzi", "double=true", "operator=none", "experiment=mine", "--auto"]
    given += [f"ros.domain_id={new_domain()}", f"run_dir={tmp_path / 'run'}"]
    assert main(["calibrate", "camera", "wrist", *given, "--config-dir", str(config_dir)]) == 2
    assert "too few pictures" in capsys.readouterr().err
    assert ["move 1 of" in asked[0], "move 2 of" in asked[1], "back to" in asked[2]] == [True] * 3
    assert len(asked) == 3
    gate = (tmp_path / "run" / "logs" / "gate.log").read_text()
    assert "run" not in [line.rpartition(": ")[2] for line in gate.splitlines()]
