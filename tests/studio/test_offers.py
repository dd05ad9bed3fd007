"""Whatever the studio offers for a run is begun on its page; the run drives a ROS 2 graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.config.run_folder import METRICS
from tests.support.served import new_page, until
from tests.support.studio import ServedStudio

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(900)]  # make soak
WORDS = (
    "runtime=ros",
    "train.video=false",
    "train.max_env_steps=200",
    "train.eval_episodes=2",
    "train.stochastic_eval_episodes=0",
)
LONG_S = 120.0  # a graph comes up, works and ends


def press(page: Any, label: str, **said: str) -> None:
    """Open the dialog of an action, fill its fields (by the word that names each), and start it."""
    page.get_by_role("button", name=label, exact=True).click()
    ask = page.locator("dialog")
    for name, value in said.items():
        field = ask.get_by_label(name.replace("_", " "))
        (field.select_option if name == "format" else field.fill)(value)
    start = ask.get_by_role("button", name=label, exact=True)
    until(start.is_enabled, 60.0)
    start.click()
    until(ask.is_hidden)


def test_a_ros_run_is_trained_measured_put_to_work_and_exported_from_the_page(
    context: Any, studio: ServedStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBOT_RL_DISK_RESERVE_BYTES", "0")
    page = new_page(context)
    page.goto(studio.invite())
    page.get_by_role("link", name="Start a run").click()
    until(lambda: page.locator(".plan code").count(), 60.0)
    page.locator("#experiment").select_option("reach")
    page.get_by_label("more words").fill("\n".join(("train.demos=1", *WORDS)))
    begin = page.get_by_role("button", name="Start", exact=True)
    until(lambda: "runtime=ros" in page.locator(".plan code").inner_text(), 60.0)
    until(begin.is_enabled, 60.0)
    run = Path(page.locator(".plan code").inner_text().rpartition("run_dir=")[2])
    begin.click()
    name = run.relative_to(studio.studio.folder).as_posix()
    line = page.locator(f'.run[data-id="{name}"]')
    until(line.count, LONG_S)
    line.get_by_role("link").click()
    detail = page.locator(".detail .top")
    until(lambda: "practising" in detail.inner_text(), LONG_S)
    until(lambda: "ended" in detail.inner_text(), 3 * LONG_S)  # the budget is used up
    assert json.loads((run / "run.json").read_text())["command"].startswith("robot-rl train")

    def done(command: str) -> bool:
        """Whether the page says that a command of this run is done."""
        rows = page.locator(".detail section div", has=page.locator("small")).all_inner_texts()
        return any("done" in row and command in row for row in rows)

    folder = str(run)
    press(page, "Evaluate", episodes="2")
    until(lambda: done(f"robot-rl eval {folder} --episodes 2"), 3 * LONG_S)
    press(page, "Deploy", episodes="2")
    until(lambda: done(f"robot-rl deploy {folder} runtime=lockstep --episodes 2"), LONG_S)
    assert (run / "deploy" / METRICS).read_text().count('"deploy_episode/index"') == 2
    for to in ("lerobot", "mcap"):
        press(page, "Export", format=to)
        until(lambda to=to: done(f"robot-rl export {folder} --to {to}"), LONG_S)
        assert any((run / "exports" / to).iterdir())
    press(page, "Write report")
    until(lambda: done(f"robot-rl report {folder}"), LONG_S)
    assert page.get_by_role("link", name="Save report").is_visible()
    assert page.problems == []
