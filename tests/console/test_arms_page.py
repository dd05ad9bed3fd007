"""The page of a run with several arms: a tab, a seat and a hold for each, one hold for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_rl.system.audit import AUDIT
from tests.console.test_page import shoot
from tests.support import entry
from tests.support.served import (
    NETWORK_PIXELS,
    RobotSide,
    Served,
    new_page,
    until,
    write_figures,
)

ARMS = ("left", "right")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with two arms and two cameras each."""
    from robot_rl.run.experiment import Experiment

    words = ["experiment=peg_insert_easy_pixels", f"task.image_size={NETWORK_PIXELS}"]
    folder = tmp_path / "run"
    experiment = Experiment.compose([*words, "actors=left,right", f"run_dir={folder}"])
    experiment.save()
    for arm in experiment.arms:
        write_figures(arm.run_dir)
    return folder


@pytest.fixture
def sides(run_dir: Path) -> Iterator[dict[str, RobotSide]]:
    """The robot side of each arm."""
    made = {name: RobotSide(run_dir / "arms" / name) for name in ARMS}
    yield made
    for side in made.values():
        side.close()


@pytest.fixture
def console(run_dir: Path) -> Iterator[Served]:
    """The console's server of the run."""
    served = Served(run_dir)
    yield served
    served.close()


@pytest.fixture
def page(context: Any, console: Served, sides: dict[str, RobotSide]) -> Any:
    """The page of the first arm; fails on any error in it."""
    made = new_page(context)
    made.goto(console.invite())
    made.wait_for_selector("#arms .arm[data-arm=right]:not([data-word=OFFLINE])")
    yield made
    assert made.problems == []


def press_drive(page: Any, sides: dict[str, RobotSide]) -> dict[str, int]:
    """Hold the drive key for a second; how often each arm was told that it is held."""
    before = {name: len(side.heard) for name, side in sides.items()}
    page.keyboard.down("Space")
    page.wait_for_timeout(1000)
    page.keyboard.up("Space")
    page.wait_for_timeout(100)
    return {
        name: sum("drive" in said["held"] for _, said in side.heard[before[name] :])
        for name, side in sides.items()
    }


def test_keys_reach_the_arm_whose_seat_is_taken_and_no_other(
    page: Any, sides: dict[str, RobotSide], console: Served
) -> None:
    assert press_drive(page, sides) == {"left": 0, "right": 0}  # nobody has a seat
    page.keyboard.press("KeyT")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    told = press_drive(page, sides)
    assert told["left"] >= 5 and told["right"] == 0
    page.wait_for_selector(".arm[data-arm=left] small:text('you have the seat')")
    shoot(page, "console_arms")
    page.keyboard.press("Digit2")  # the tab of the second arm: its seat is another
    page.wait_for_selector("#arms .arm[data-arm=right] [aria-current=page]")
    until(lambda: page.evaluate("globalThis.robotRL?.lease.mine === false"))
    holders = [console.arms[name].access.holder for name in ARMS]
    assert holders == [None, None]  # the seat was left with the tab
    assert press_drive(page, sides) == {"left": 0, "right": 0}
    page.keyboard.press("KeyT")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    told = press_drive(page, sides)
    assert told["right"] >= 5 and told["left"] == 0


def test_each_arm_is_held_alone_and_all_are_held_at_once(
    page: Any, sides: dict[str, RobotSide], run_dir: Path
) -> None:
    page.click(".arm[data-arm=right] button")
    until(lambda: sides["right"].commands == ["hold"])
    assert sides["left"].commands == []
    page.keyboard.press("Escape")  # this page's arm
    until(lambda: sides["left"].commands == ["hold"])
    assert sides["right"].commands == ["hold"]
    page.click("#hold-all")
    until(lambda: [side.commands for side in sides.values()] == [["hold"] * 2] * 2)
    page.keyboard.press("Shift+Escape")
    until(lambda: [side.commands for side in sides.values()] == [["hold"] * 3] * 2)


def test_the_headsets_page_is_of_the_arm_that_its_address_names(page: Any, console: Served) -> None:
    lines: list[str] = []
    headset = page.context.new_page()
    headset.on("websocket", lambda line: lines.append(line.url))
    headset.goto(f"{console.url}/xr?arm=right")
    until(lambda: headset.evaluate("document.body.dataset.word") != "OFFLINE")
    assert [url.rpartition("/")[2] for url in lines if "video" not in url] == [
        "control?arm=right",
        "telemetry?arm=right",
    ]


def test_a_tab_shows_what_its_arm_does_and_one_that_is_gone_hides_nothing(
    page: Any, sides: dict[str, RobotSide]
) -> None:
    stopped = {"mode": "protective_stop", "reason": "force"}
    sides["right"].view = sides["right"].view | {"gate": stopped}
    page.wait_for_selector(".arm[data-arm=right][data-word='PROTECTIVE STOP']")
    assert page.get_attribute(".arm[data-arm=left]", "data-word") == "POLICY"
    sides["right"].close()
    page.wait_for_selector(".arm[data-arm=right][data-word=OFFLINE]")
    page.problems.clear()  # the browser notes the answer 503
    page.click("#hold-all")  # left is held although right does not answer, and the page says so
    until(lambda: sides["left"].commands == ["hold"])
    page.wait_for_selector("#toast:has-text('right:')")
    page.problems.clear()


def test_commands_name_their_arm_in_the_audit_log_and_an_unknown_arm_is_refused(
    console: Served, sides: dict[str, RobotSide], run_dir: Path
) -> None:
    from websockets.exceptions import InvalidStatus, WebSocketException

    from robot_rl.system.audit import audit, audit_into

    before = list(audit.handlers)
    audit_into(run_dir)
    client = entry.entered(console.invite())
    assert client.post("/api/lease/claim?arm=right").status_code == 200
    assert client.post("/api/command/ready?arm=left").status_code == 409  # the seat is right's
    assert client.post("/api/command/ready?arm=right").status_code == 200
    wrong = client.post("/api/command/ready?arm=rihgt")
    assert wrong.status_code == 404 and "did you mean 'right'" in wrong.text
    assert client.post("/api/command/hold?arm=rihgt").status_code == 200  # but a stop is for all
    for handler in set(audit.handlers) - set(before):
        audit.removeHandler(handler)
    lines = (run_dir / AUDIT).read_text()
    assert "operator 1, right: lease claim" in lines and "operator 1, right: ready" in lines
    assert sides["right"].commands == ["ready", "hold"] and sides["left"].commands == ["hold"]
    with (
        pytest.raises((WebSocketException, InvalidStatus)),
        entry.socket_of(client, "/ws/control?arm=rihgt") as line,
    ):
        line.recv()
