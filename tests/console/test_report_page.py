"""The script of report pages, in a browser: crosshairs, the values beside them, and no error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.report import svg
from robot_rl.report.document import document, write
from robot_rl.report.report import write_report
from robot_rl.report.rewards import write_reward_page
from robot_rl.reward.metrics import Strip
from tests.support.served import new_page
from tests.support.synthetic_run import write_deployment, write_run


def show(context: Any, path: Path) -> Any:
    """A page from the disk."""
    page = new_page(context)
    page.goto(path.as_uri())
    return page


def point_at(page: Any, number: int, share: float) -> str:
    """Move the pointer along a chart, and read the values beside it."""
    chart = page.locator("svg.chart[data-chart]").nth(number)
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    tip = page.locator(".tip:visible")
    beside = tip.bounding_box()
    assert box["y"] - 150 < beside["y"] < box["y"] + box["height"]  # at its chart
    return str(tip.inner_text())


def test_a_run_with_a_deployment_has_crosshairs(context: Any, tmp_path: Path) -> None:
    write_deployment(write_run(tmp_path) / "deploy", "+-+")
    page = show(context, write_report(tmp_path))
    assert page.locator("svg.chart:not([data-chart])").count() == 1  # that of the deployment
    said = point_at(page, 0, 0.5)
    assert said.startswith("env steps") and "success" in said
    assert page.problems == []


def test_each_chart_says_what_its_x_axis_is_and_has_a_crosshair_as_far_as_it_reaches(
    context: Any, tmp_path: Path
) -> None:
    box, x = svg.Box(600, 140), np.array([0.0, 0.123, 0.4])
    charts = [
        svg.chart([svg.Curve("y", x[:n], x[:n])], box, x_range=(0.0, x[n - 1]), x_label="seconds")
        for n in (3, 2)
    ]
    body = "".join(f'<div class="plot">{chart}</div>' for chart in charts)
    path = tmp_path / "page.html"
    write(path, document(title="t", kicker="k", name="n", subtitle="s", body=body))
    page = show(context, path)
    left, width = box.left / box.width, (box.width - box.right - box.left) / box.width
    assert point_at(page, 0, left + 0.3 * width).split("\n") == ["seconds 0.12", "y 0.123"]
    cursors = page.locator(".cursor")
    assert [cursors.nth(i).get_attribute("visibility") for i in (0, 1)] == ["visible"] * 2
    point_at(page, 0, left + 0.9 * width)
    assert [cursors.nth(i).get_attribute("visibility") for i in (0, 1)] == ["visible", "hidden"]


def test_the_values_of_a_reward_model_stand_beside_their_chart(
    context: Any, tmp_path: Path
) -> None:
    pytest.importorskip("cv2")
    images = np.zeros((20, 8, 8, 3), np.uint8)
    strips = [Strip(f"episode {i}", images, {"score": np.linspace(0, 1, 20)}) for i in range(6)]
    target = tmp_path / "rewards.html"
    write_reward_page(target, name="m", subtitle="s", figures={}, strips=strips)
    page = show(context, target)
    assert point_at(page, 5, 0.5).startswith("frame")
