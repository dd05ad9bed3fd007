"""Goal and tip from above, the height at the tip, and layouts that are remembered."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from robot_rl.geometry import quat_to_matrix
from robot_rl.tasks.common import ALONG_TOOL, AT_WRIST, OVERVIEW, VIEWS, upright
from robot_rl.tasks.goals import Goal, goal_words
from robot_rl.types import Pose
from tests.console.test_accessible import everywhere
from tests.console.test_page import page, shoot
from tests.console.test_views import Eye, scene
from tests.support.served import CAMERAS, until

__all__ = ["page", "scene"]  # fixtures
SIZES = ((390, 844), (768, 1024), (1280, 800), (2560, 1440))
TIP_M = np.array((0.012, -0.003, 0.040))  # of the tip from the goal, in base
STEPS = ((300, 500), (100, 200), (43, 200), (20, 50), (43, 50), (3, 10), (0.5, 2), (7, 10))
SAID = re.compile(
    r"The tip, from the goal: ([\d.]+) mm (left|right), ([\d.]+) mm (away|towards you), "
    r"([\d.]+) mm (above|below)"
)
DOT = """['cx', 'cy'].map((k) => +document.querySelector('.inset .dot').getAttribute(k))"""
# what lies over the large picture, and HOLD: nothing over another; HOLD may lie over a picture
OVERLAPS = """
() => {
  const found = [], box = (x) => x.getBoundingClientRect();
  const names = [".chosen .name b", ".chosen .age", ".chosen .layout", ".inset", "#hold"];
  const all = names.map((n) => document.querySelector(n)).filter((x) => box(x).width);
  for (const a of all.filter((x) => x.id !== "hold")) for (const b of all) {
    const p = box(a), q = box(b);
    const over = p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom;
    const at = document.elementFromPoint(q.x + q.width / 2, q.y + 9);
    if (a !== b && over && (b.id !== "hold" || a.contains(at))) {
      found.push([a, b].map((x) => x.className || x.id || x.tagName).join(" over "));
    }
  }
  const [outer, inner] = [".chosen", ".inset"].map((n) => box(document.querySelector(n)));
  const out = inner.width && (inner.right > outer.right || inner.top < outer.top);
  if (out) found.push("the map is larger than its picture");
  const parts = [...document.querySelectorAll(".inset, .inset p, .inset button")];
  if (parts.some((x) => x.scrollWidth > x.clientWidth)) found.push("the map is cut off");
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is too wide");
  return found;
}
"""


def goal_at(tip: Pose, **fields: Any) -> dict[str, Any]:
    """The goal of a tip that is `TIP_M` from it, as the view node says it."""
    return goal_words(Goal(upright(tip.position_m - TIP_M, 0.3), tip, **fields))


@pytest.fixture
def goal(robot: Any, scene: Any) -> dict[str, Any]:
    """A goal below the tool of the scene, known to the robot side."""
    words = goal_at(scene[1], half_m=(0.00825, 0.00825), tolerance_m=0.001)
    robot.view = robot.view | {"goal": words}
    return words


def said(page: Any) -> tuple[float, float, float]:
    """(right, away, above) in mm, as the map says it to who cannot see it."""
    found = SAID.fullmatch(page.locator(".inset svg").get_attribute("aria-label") or "")
    assert found is not None, page.locator(".inset svg").get_attribute("aria-label")
    right, side, along, way, high, above = found.groups()
    signs = side == "right", way == "away", above == "above"
    numbers = float(right), float(along), float(high)
    a, b, c = (n if plus else -n for n, plus in zip(numbers, signs, strict=True))
    return a, b, c


def test_the_map_says_what_telemetry_says_turned_as_the_keys_of_the_large_picture(
    page: Any, goal: dict[str, Any], scene: Any
) -> None:
    """Up in the map is what W does; the test of keys has W lead away in each picture."""
    until(lambda: page.locator(".inset").is_visible())
    for view in (*CAMERAS, *VIEWS):
        page.locator(f"[data-camera={view}] canvas").click(position={"x": 20, "y": 60})
        until(lambda want=view: page.evaluate("robotRL.look.chosen") == want)
        map_is_turned_as_the_keys(page, scene, view)


def map_is_turned_as_the_keys(page: Any, scene: Any, view: str) -> None:
    places, tcp, rotation = scene
    right_mm, away_mm, above_mm = until(lambda: said(page))
    assert above_mm == pytest.approx(40.0)
    assert np.hypot(right_mm, away_mm) == pytest.approx(1e3 * np.hypot(*TIP_M[:2]), abs=0.6)
    seen = page.evaluate("robotRL.look.seen")
    tool = rotation @ np.array((np.cos(seen["yaw_rad"]), np.sin(seen["yaw_rad"]), 0.0))
    up = tool if seen["frame"] == "tool" else rotation_about_z(seen["yaw_rad"])
    right = np.array((up[1], -up[0]))
    wanted = 1e3 * np.array((right @ TIP_M[:2], up[:2] @ TIP_M[:2]))
    until(lambda: said(page)[:2] == pytest.approx(wanted, abs=0.6))
    # up in the map leads up in the picture as well
    eye = Eye(places[view], tcp, rotation)
    x, y = eye.way(np.array((*(rotation.T @ np.array((*up[:2], 0.0))), 0.0, 0.0, 0.0)))
    assert y > 0 and abs(x) < 0.6 * y, view
    scale_mm = page.evaluate("robotRL.look.inset.scale_mm")
    assert page.evaluate(DOT) == pytest.approx(wanted / scale_mm * (1, -1), abs=0.01)
    assert page.locator(".inset button span").inner_text() == f"±{scale_mm} mm"


def rotation_about_z(yaw_rad: float) -> np.ndarray:
    return np.array((np.cos(yaw_rad), np.sin(yaw_rad), 0.0))


def test_without_a_known_place_up_is_where_the_tool_points_forward(page: Any, robot: Any) -> None:
    """As the keys: with a camera whose place nobody has measured they are the tool's own."""
    half = np.radians(100.0) / 2
    tcp = Pose(np.array((0.5, 0.0, 0.2)), np.array((np.cos(half), np.sin(half), 0.0, 0.0)))
    where = [*tcp.position_m.tolist(), *tcp.quaternion_xyzw.tolist()]
    robot.view = robot.view | {"tcp_in_base": where, "goal": goal_at(tcp)}
    until(lambda: page.locator(".inset").is_visible())
    x = quat_to_matrix(tcp.quaternion_xyzw)[:2, 0]
    wanted = 1e3 * np.array((x[1] * TIP_M[0] - x[0] * TIP_M[1], x @ TIP_M[:2]))
    assert said(page)[:2] == pytest.approx(wanted, abs=0.6)
    assert page.locator(".inset p").inner_text() == "40 mm above"  # no place: nothing at the tip


def test_the_height_stands_at_the_tip_beside_the_force(
    page: Any, robot: Any, goal: dict[str, Any]
) -> None:
    tip = page.locator(".chosen .tip text").last
    until(lambda: tip.text_content() == "3.2 N, 40 mm above")
    low = goal | {"tip_m": [*goal["tip_m"][:2], goal["position_m"][2] - 0.0042]}
    stopped = {"mode": "hold", "reason": "person: hold", "waits": "person"}
    robot.view = robot.view | {"goal": low, "gate": stopped}
    texts = (
        "[...document.querySelectorAll('.chosen .tip text')].slice(-2).map((x) => x.textContent)"
    )
    until(lambda: page.evaluate(texts) == ["3.2 N, 4.2 mm below", "person: hold"])
    robot.view = robot.view | {"goal": low | {"axis": [-1.0, 0.0, 0.0]}}  # into a wall
    until(lambda: page.evaluate(texts)[0] == "3.2 N, 12 mm past it")
    robot.view = robot.view | {"goal": None}
    until(lambda: page.evaluate(texts)[0] == "3.2 N")
    assert page.locator(".inset").is_hidden()


def test_the_scale_goes_by_steps_and_does_not_flicker_between_two(
    page: Any, robot: Any, goal: dict[str, Any]
) -> None:
    scale = "robotRL.look.inset.scale_mm"

    def at(far_mm: float) -> None:
        x, y, z = goal["position_m"]
        robot.view = robot.view | {"goal": goal | {"tip_m": [x + far_mm / 1e3, y, z]}}

    until(lambda: page.evaluate(scale) == 50)
    for far_mm, wanted in STEPS:
        at(far_mm)
        until(lambda w=wanted: page.evaluate(scale) == w)
        shown = f"±{wanted} mm"
        until(lambda s=shown: page.locator(".inset button span").inner_text() == s)
    ring = page.locator(".inset .ring").get_attribute("r")
    assert float(ring or 0.0) == pytest.approx(0.1)  # 1 mm of 10
    at(9000.0)  # somewhere else: at the edge, not outside
    until(lambda: page.evaluate(scale) == 500)
    assert max(abs(v) for v in page.evaluate(DOT)) <= 0.95


def test_the_map_can_be_put_away_and_that_is_remembered(page: Any, goal: dict[str, Any]) -> None:
    until(lambda: page.locator(".inset svg").is_visible())
    page.keyboard.press(",")
    assert page.locator(".inset svg").is_hidden()
    button = page.locator(".inset button")
    assert button.inner_text().startswith("Goal")
    assert button.get_attribute("aria-expanded") == "false"
    page.reload()
    until(lambda: page.evaluate("Boolean(globalThis.robotRL)") and button.is_visible())
    assert page.locator(".inset svg").is_hidden()
    button.click()
    assert page.locator(".inset svg").is_visible()
    assert page.evaluate("robotRL.look.chosen") == OVERVIEW


def sides(page: Any) -> dict[str, float]:
    """Width of each picture's box."""
    return {
        name: page.locator(f"[data-camera={name}]").bounding_box()["width"]
        for name in (*VIEWS, *CAMERAS)
    }


def test_a_layout_is_remembered_and_keys_follow_the_chosen_picture(page: Any, scene: Any) -> None:
    assert page.evaluate("robotRL.look.layout") == "one"
    page.keyboard.press("p")
    page.keyboard.press(".")
    wide = sides(page)
    assert wide[AT_WRIST] == pytest.approx(wide[OVERVIEW], abs=1)
    assert wide[OVERVIEW] > 1.5 * max(wide[ALONG_TOOL], *(wide[name] for name in CAMERAS))
    first, second = (
        page.locator(f"[data-camera={n}]").bounding_box() for n in (AT_WRIST, OVERVIEW)
    )
    assert first["x"] < second["x"] and first["y"] == pytest.approx(second["y"], abs=1)
    page.reload()
    until(lambda: page.evaluate("globalThis.robotRL?.look?.layout") == "two")
    assert sides(page) == pytest.approx(wide, abs=1)
    page.locator(f"[data-camera={ALONG_TOOL}] canvas").click(position={"x": 20, "y": 60})
    assert page.evaluate("[robotRL.look.chosen, robotRL.look.second]") == [ALONG_TOOL, AT_WRIST]
    until(lambda: page.evaluate("robotRL.look.seen?.frame") == "tool")
    page.locator(".layout").click()
    assert page.locator(".layout").get_attribute("aria-label") == (
        "Layout: All pictures are equally large"
    )
    wide = sides(page)
    assert max(wide.values()) - min(wide.values()) < 1
    page.reload()
    until(lambda: page.evaluate("globalThis.robotRL?.look?.layout") == "all")
    page.keyboard.press(".")
    assert sides(page)[ALONG_TOOL] > 2 * sides(page)[OVERVIEW]


def test_nothing_lies_over_anything_in_any_layout_at_any_size(
    page: Any, goal: dict[str, Any]
) -> None:
    found = {}
    for layout in ("one", "two", "all"):
        page.evaluate(f"robotRL.look.arrange('{layout}')")
        until(lambda: page.locator(".inset svg").is_visible())
        until(lambda: page.locator(".camera .age.red").count() == 0)
        for wide, high in SIZES:
            page.set_viewport_size({"width": wide, "height": high})
            page.wait_for_timeout(100)
            if problems := page.evaluate(OVERLAPS):
                found[f"{layout}, {wide}x{high}"] = problems
            shoot(page, f"inset_{layout}_{wide}")
    assert found == {}


def test_the_map_and_the_layouts_are_accessible(page: Any, goal: dict[str, Any]) -> None:
    until(lambda: page.locator(".inset svg").is_visible())
    page.keyboard.press(".")
    assert everywhere(page) == []
