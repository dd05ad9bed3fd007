"""Keys follow the large picture: in each, W leads away from the person and D to the right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.errors import RobotRLError
from robot_rl.geometry import quat_from_matrix
from robot_rl.observe.cameras import CameraConfig
from robot_rl.observe.places import place_of
from robot_rl.operate.handset import turned
from robot_rl.operate.remote import heading_of, parse
from robot_rl.run.experiment import Experiment
from robot_rl.tasks.common import ALONG_TOOL, AT_WRIST, OVERVIEW, VIEWS
from robot_rl.types import Pose
from tests.console.test_page import page, shoot
from tests.support.served import CAMERAS, until

__all__ = ["page"]  # a fixture
HELD_M = 0.02
# whether a camera's picture is called new for three quarters of a second on end; a picture every
# 300 ms that were judged like the large one could not be
CALLED_NEW = """(name) => new Promise((done) => {
    const badge = document.querySelector(`[data-camera="${name}"] .age`);
    const end = performance.now() + 750;
    const look = () => {
        if (!badge.classList.contains("green")) done(false);
        else if (performance.now() > end) done(true);
        else setTimeout(look, 20);
    };
    look();
})"""


class Eye:
    """A view of the mirror, by its own figures: where it sees a point that moves with the tool."""

    def __init__(self, place: dict[str, Any], tcp: Pose, rotation: np.ndarray) -> None:
        at, turn = np.array(place["position_m"]), np.array(place["rotation"])
        if place["frame"] == "tool":
            at, turn = tcp.position_m + rotation @ at, rotation @ turn
        self._at, self._turn, self._tool = at, turn, rotation
        self._tcp_m = tcp.position_m

    def way(self, axes: np.ndarray) -> np.ndarray:
        """[2] right and up in the picture: where a tool goes that moves along its axes."""

        def seen(point: np.ndarray) -> np.ndarray:
            off = self._turn.T @ (point - self._at)
            return off[:2] / -off[2]

        moved = self._tcp_m + self._tool @ (HELD_M * axes[:3])
        return seen(moved) - seen(self._tcp_m)


@pytest.fixture
def scene(run_dir: Path, robot: Any) -> tuple[dict[str, Any], Pose, np.ndarray]:
    """Where the views of the run's scene are, and a tool that has turned by 50 degrees."""
    run = Experiment.load(run_dir)
    mirror = run.mirror()
    try:
        places = mirror.places()
    finally:
        mirror.close()
    a = np.radians(50.0)
    c, s = np.cos(a), np.sin(a)
    rotation = np.array(((c, s, 0.0), (s, -c, 0.0), (0.0, 0.0, -1.0)))  # it points down
    quaternion = np.array((np.cos(a / 2), np.sin(a / 2), 0.0, 0.0))
    tcp = Pose(np.array((0.5, 0.05, 0.15)), quaternion)
    tcp_in_base = [*tcp.position_m.tolist(), *quaternion.tolist()]
    robot.view = robot.view | {"places": places, "tcp_in_base": tcp_in_base}
    return places, tcp, rotation


def pressed(page: Any, robot: Any, key: str, tcp: Pose) -> np.ndarray:
    """[6] axes of the tool that the operator's node makes of a key held now."""
    robot.heard.clear()
    page.keyboard.down(key)
    said = until(lambda: next((s for _, s in robot.heard[3:] if any(s["axes"])), None))
    page.keyboard.up(key)
    reading = parse(json.dumps(said).encode(), 0.0)
    if reading.heading_rad is None:
        return turned(reading.axes, reading.turn_rad)
    return turned(reading.axes, reading.heading_rad - heading_of(tcp))


def test_in_every_picture_w_leads_away_and_d_to_the_right(
    page: Any, robot: Any, scene: tuple[dict[str, Any], Pose, np.ndarray]
) -> None:
    places, tcp, rotation = scene
    until(lambda: page.evaluate("Object.keys(robotRL.look.places).length"))
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    for view in (*CAMERAS, *VIEWS):
        eye = Eye(places[view], tcp, rotation)
        page.locator(f"[data-camera={view}]").click()
        assert page.evaluate("robotRL.look.chosen") == view
        right, up = eye.way(pressed(page, robot, "d", tcp))
        assert right > 0 and abs(up) < 0.6 * right, view
        right, up = eye.way(pressed(page, robot, "w", tcp))
        assert up > 0 and abs(right) < 0.6 * up, view
        assert pressed(page, robot, "q", tcp)[2] == 1.0, view  # down stays down
        shoot(page, f"view_{view}")


def test_the_tip_and_its_axes_are_drawn_where_they_are_seen(
    page: Any, robot: Any, scene: tuple[dict[str, Any], Pose, np.ndarray]
) -> None:
    """The along-tool view looks at the tip; in the overview it is where the figures say."""
    places, tcp, _ = scene
    tip = """[...document.querySelectorAll('.chosen .tip line.W')]
      .map((line) => [+line.getAttribute('x1'), -line.getAttribute('y1')])[0]"""
    until(lambda: page.evaluate(tip))
    page.locator(f"[data-camera={ALONG_TOOL}]").click()
    until(lambda: np.allclose(page.evaluate(tip) or [9, 9], 0.0, atol=1e-6))
    page.locator(f"[data-camera={OVERVIEW}]").click()
    place = places[OVERVIEW]
    off = np.array(place["rotation"]).T @ (tcp.position_m - np.array(place["position_m"]))
    scale = 0.5 / np.tan(np.radians(place["fovy_deg"]) / 2) / -off[2]
    until(lambda: np.allclose(page.evaluate(tip) or [9, 9], scale * off[:2], atol=1e-4))
    assert "3.2 N" in page.locator(".chosen .tip").inner_html()


def test_a_line_at_the_tip_is_not_cut_at_the_edge_of_the_picture(
    page: Any, robot: Any, scene: tuple[dict[str, Any], Pose, np.ndarray]
) -> None:
    right = list(robot.view["tcp_in_base"])
    right[1] -= 0.1
    reason = "operator_silent: release the device, then press it again"
    gate = {"mode": "hold", "reason": reason}

    def fits() -> bool:
        line = page.locator(".chosen .tip text").last.bounding_box()
        box = page.locator(".camera.chosen").bounding_box()
        if not line or not box or line["x"] < box["x"]:
            return False
        return line["x"] + line["width"] <= box["x"] + box["width"]

    for tcp in (robot.view["tcp_in_base"], right):
        robot.view = robot.view | {"tcp_in_base": tcp, "gate": gate, "force_n": 3.0}
        until(lambda: page.locator(".chosen .tip text").last.text_content() == reason)
        page.wait_for_timeout(300)  # it is drawn anew
        until(fits)


def test_a_measured_camera_of_a_real_arm_has_the_place_that_its_calibration_says() -> None:
    """At the hand, 5 cm beside the tool, looking along it, its picture's top towards x."""
    turned = quat_from_matrix(np.array(((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))))
    pose = (0.0, 0.05, -0.1, *turned.tolist())
    camera = CameraConfig(k=(600.0, 600.0, 320.0, 240.0), mount="hand", pose=pose)
    found = place_of(camera, (120, 160))
    assert found is not None and found["frame"] == "tool"
    right, up, back = np.array(found["rotation"]).T
    assert np.allclose((right, up, back), ((0, 1, 0), (1, 0, 0), (0, 0, -1)))
    assert found["fovy_deg"] == pytest.approx(43.603, abs=1e-3)
    stretched = place_of(camera, (128, 128))
    assert stretched is not None and stretched["fovy_deg"] == 0.0
    assert place_of(CameraConfig(), (128, 128)) is None


def test_the_large_picture_is_remembered_and_p_changes_it(page: Any, robot: Any) -> None:
    assert page.evaluate("robotRL.look.chosen") == OVERVIEW
    page.keyboard.press("p")
    assert page.evaluate("robotRL.look.chosen") == AT_WRIST
    large, small = (page.locator(f"[data-camera={n}]").bounding_box() for n in (AT_WRIST, OVERVIEW))
    assert large["width"] > 2 * small["width"]
    page.reload()
    until(lambda: page.evaluate("globalThis.robotRL?.look?.chosen") == AT_WRIST)


def test_h_makes_each_press_a_small_step(page: Any, robot: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    page.keyboard.press("h")
    until(lambda: robot.heard and parse(json.dumps(robot.heard[-1][1]).encode(), 0.0).nudge)
    until(lambda: "on" in page.locator("#legend span", has_text="nudge").get_attribute("class"))
    page.keyboard.press("h")
    until(lambda: not parse(json.dumps(robot.heard[-1][1]).encode(), 0.0).nudge)


def test_without_a_known_place_keys_are_the_tools_own(page: Any, robot: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    down = Pose(np.zeros(3), np.array((1.0, 0.0, 0.0, 0.0)))
    assert pressed(page, robot, "w", down).tolist() == [1, 0, 0, 0, 0, 0]
    assert "seen" not in robot.heard[-1][1]


def test_small_drawn_pictures_come_now_and_then_and_are_not_called_old(
    page: Any, robot: Any
) -> None:
    counts = "Object.fromEntries(robotRL.views.map((v) => [v.box.dataset.camera, v.drawn]))"
    until(lambda: all(page.evaluate(counts).values()))

    def now_and_then() -> bool:
        before = page.evaluate(counts)
        page.wait_for_timeout(2500)
        drawn = {name: count - before[name] for name, count in page.evaluate(counts).items()}
        return drawn[OVERVIEW] > 2 * drawn[AT_WRIST] > 0 and drawn[ALONG_TOOL] <= 9

    until(now_and_then, 60)  # a busy machine draws the large one no more often at times
    assert page.evaluate("robotRL.look.chosen") == OVERVIEW
    for name in (AT_WRIST, ALONG_TOOL):
        until(lambda name=name: page.evaluate(CALLED_NEW, name), 60)


@pytest.mark.parametrize(
    "seen", [3, {}, {"frame": "sky", "yaw_rad": 0}, {"frame": "base", "yaw_rad": 1e9}]
)
def test_a_heading_that_makes_no_sense_is_refused(seen: Any) -> None:
    said = {"axes": [0] * 6, "held": [], "seen": seen}
    with pytest.raises(RobotRLError, match="malformed input"):
        parse(json.dumps(said).encode(), 0.0)
