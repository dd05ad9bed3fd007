"""The card "Deployment" and the picture of a scene to restore, in a real headless browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.console.test_page import OUTSIDE, page, shoot, word
from tests.console.test_server import enter
from tests.support.served import until

__all__ = ["page"]  # a fixture

FIGURES = {
    "episodes": 212.0,
    "labelled": 210.0,
    "unlabelled": 2.0,
    "successes": 201.0,
    "success": 201 / 210,
    "success_low": 0.921,
    "success_high": 0.977,
    "unaided": 198.0,
    "unaided_success": 198 / 210,
    "cycle_time_s_median": 6.4,
    "cycle_time_s_p90": 9.1,
    "interventions": 5.0,
    "mtbi_s": 1440.0,
    "autonomy_steps": 0.9934,
    "autonomy_episodes": 0.976,
    "failures_in_a_row": 1.0,
}
FAILED = [
    {"episode": 3, "at": "2026-11-25T09:41:00Z", "steps": 12, "reason": "time limit"},
    {"episode": 1, "at": "2026-11-25T08:10:00Z", "steps": 12, "reason": "force: 52 N above 50 N"},
]


def tell(run_dir: Path, **line: object) -> None:
    """Append a line of figures, as an actor does."""
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"env_steps": 0, **line}) + "\n")


def test_the_card_shows_figures_and_the_last_failures(page: Any, run_dir: Path) -> None:
    card = page.locator("#deploy")
    assert not card.is_visible()  # a training
    figures = {f"deploy/{name}": value for name, value in FIGURES.items()}
    tell(run_dir, state="deployment", deploy_failed=json.dumps(FAILED), **figures)
    until(lambda: card.is_visible() and not page.locator("#learning").is_visible())
    until(lambda: "201 of 210 (95 %: 92 % to 98 %)" in card.inner_text())
    text = card.inner_text()
    for said in ("96 %", "99.3 %", "6.4 s", "24 min", "episode 3", "time limit, 09:41 UTC"):
        assert said in text, said
    pictures = page.locator("#deploy-failed img")
    until(lambda: pictures.evaluate_all("all => all.length && all.every((x) => x.naturalWidth)"))
    assert pictures.count() == 2 and page.evaluate(OUTSIDE) == []
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth")  # no figure is cut off
    shoot(page, "console_deployment")
    with page.context.expect_page() as opened:
        page.locator("#deploy-failed a").nth(1).click()
    review = opened.value
    until(lambda: "episode 1" in review.locator("#name").inner_text())


def test_a_scene_to_restore_lies_over_the_camera_while_it_is_asked_for(
    page: Any, run_dir: Path, robot: Any
) -> None:
    (run_dir / "scene").mkdir()
    for camera in page.evaluate("robotRL.about.cameras"):
        if camera != "video":
            picture = np.full((64, 64, 3), 120, np.uint8)
            cv2.imwrite(str(run_dir / "scene" / f"start-004-{camera}.jpg"), picture)
    tell(run_dir, state="comparison", scene="start-004")
    asks = {"asks": "the scene as in the picture: peg\nhands out of the way"}
    robot.view = robot.view | asks | {"gate": {"mode": "hold", "reason": "no command"}}
    until(lambda: word(page) == "RESET?" and page.locator("#scene img").count() == 2)
    over = page.locator(".camera img.scene")
    until(lambda: over.evaluate_all("all => all.length === 2 && all.every((x) => x.naturalWidth)"))
    assert not page.locator("#deploy").is_visible()  # nothing that would tell who is better
    shoot(page, "console_scene")
    robot.view = robot.view | {"asks": ""}
    until(lambda: over.count() == 0 and not page.locator("#scene").is_visible())


@pytest.mark.parametrize("start", ["start-9", "..%2F..%2Fkeys", "start-001"])
def test_no_other_file_is_served_as_a_scene(console: Any, start: str) -> None:
    client = enter(console)
    answer = client.get(f"/api/scene/{start}/wrist")
    assert answer.status_code in (404, 409) and b"JFIF" not in answer.content
