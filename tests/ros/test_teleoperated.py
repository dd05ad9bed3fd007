"""A demonstration of `reach` on a double with every device that people teleoperate with.

The whole way: servos on a pseudo terminal, a topic, a terminal's characters, a headset's page or a
push -> the operator's node -> takeover -> gate -> arm -> store.
"""

from __future__ import annotations

import logging
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.geometry import rotation_error
from robot_rl.link.panel import link_file
from robot_rl.robots import Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.ros import topics
from robot_rl.store.store import Store
from robot_rl.tasks import ReachTask
from robot_rl.types import Driver
from robot_rl_hardware import leader_map
from robot_rl_hardware.leader import GELLO_SIGNS, SO101, map_name
from robot_rl_hardware.leader_map import LeaderMap
from tests.support.hands import (
    HeadsetHand,
    PushingHand,
    ServoHand,
    TopicHand,
    TypingHand,
)
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain, wait_for
from tests.support.servos import DynamixelBus, FeetechBus
from tests.support.xr import HEADSET

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]

log = logging.getLogger(__name__)
ROBOT = Ur5e()
CHAIN = Chain(ROBOT)
HOME = np.array(ROBOT.home_rad)
ACTION = ReachTask().spec.pose_action
FIRST_M, FIRST_RAD = 0.001, np.radians(0.5)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the run; calibrations go beside it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "run"


@contextmanager
def recording(run: Path, domain_id: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`robot-rl record` of one demonstration on the double of a UR5e."""
    given = ["experiment=reach", "task.max_steps=200", "runtime=ros", "ros=real", "robot=ur5e"]
    given += ["ros.double=true", f"ros.domain_id={domain_id}", f"run_dir={run}", "--demos", "1"]
    tool = Path(sys.executable).with_name("robot-rl")
    env = os.environ | {"BROWSER": "true"}  # nobody opens the page
    process = subprocess.Popen([str(tool), "record", *given, *words], env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30.0)


def recorded(run: Path, teacher: Teacher, process: subprocess.Popen[bytes]) -> list[Any]:
    """Lead until the demonstration is there; its steps."""
    give_up_s = time.monotonic() + 150.0
    while process.poll() is None and time.monotonic() < give_up_s:
        teacher.turn()
        time.sleep(0.02)
    teacher.probe.close()
    tails = [f"{p.name}: {p.read_text()[-1500:]}" for p in sorted((run / "logs").glob("op*.log"))]
    assert process.poll() == 0, "\n".join(tails)
    with Store(run / "actor.sqlite") as store:
        (episode,) = [e for e in store.episode_summaries() if e.success]
        steps = store.steps(episode.id)
    assert episode.purpose == "demo" and episode.human_steps > episode.steps / 3
    log.info("%d steps, %d by the person", episode.steps, episode.human_steps)
    return steps


def first_of(steps: list[Any]) -> Any:
    return next(s for s in steps if s.driver is Driver.DEMO)


def no_jump(steps: list[Any]) -> None:
    """The first command of the person was where the arm stood."""
    action = first_of(steps).action
    assert np.linalg.norm(action[:3]) * ACTION.translation_m < FIRST_M
    assert np.linalg.norm(action[3:6]) * ACTION.rotation_rad < FIRST_RAD


def test_a_topic_of_joint_states_leads(run: Path) -> None:
    domain_id = new_domain()
    with recording(run, domain_id, "operator=leader") as process:
        hand = TopicHand(domain_id, run, CHAIN, HOME + 0.3, brought=True, names=ROBOT.joint_names)
        no_jump(recorded(run, hand, process))


def test_a_gello_leads(run: Path) -> None:
    domain_id, signs = new_domain(), GELLO_SIGNS["ur5e"]
    zero_rad = np.pi / 2 * np.array((2, 1, 0, 2, 3, 1))
    bus = DynamixelBus(range(1, 8))
    leader_map.save(
        map_name("gello", bus.path),
        LeaderMap(zero_rad=tuple(zero_rad.tolist()), signs=signs, trigger_rad=(3.0, 4.0)),
    )
    try:
        with recording(run, domain_id, "operator=gello", f"operator.port={bus.path}") as process:
            more = {"bus": bus, "zero_rad": zero_rad, "signs": signs}
            hand = ServoHand(domain_id, run, CHAIN, HOME - 0.3, brought=True, **more)
            no_jump(recorded(run, hand, process))
    finally:
        bus.unplug()


def test_the_leader_of_an_so101_leads(run: Path) -> None:
    domain_id = new_domain()
    bus, half = FeetechBus(range(1, 7)), np.full(5, np.pi)
    leader_map.save(
        map_name("so101", bus.path),
        LeaderMap(zero_rad=(np.pi,) * 5, signs=(1,) * 5, trigger_rad=(3.0, 4.0)),
    )
    q = np.array((0.0, -0.5, 0.5, 0.5, 0.0))
    try:
        with recording(run, domain_id, "operator=so101", f"operator.port={bus.path}") as process:
            more = {"bus": bus, "zero_rad": half, "signs": (1,) * 5}
            no_jump(
                recorded(run, ServoHand(domain_id, run, SO101, q, brought=False, **more), process)
            )
    finally:
        bus.unplug()


def test_a_person_at_a_terminal_drives(run: Path) -> None:
    domain_id = new_domain()
    with recording(run, domain_id, "operator=console") as process:
        wait_for((run / "run.json").is_file, 30.0, "the run begins")
        keyboard, own = pty.openpty()
        tool = [sys.executable, "-m", "robot_rl.cli.main", "keyboard", str(run), "--typed"]
        typing = subprocess.Popen(tool, stdin=own, stdout=subprocess.DEVNULL)
        try:
            recorded(run, TypingHand(domain_id, keyboard), process)
        finally:
            typing.kill()
            typing.wait()


def test_a_person_with_a_headset_drives(run: Path) -> None:
    from robot_rl.bench.console.browser import BROWSERS

    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no chromium on this machine")
    domain_id = new_domain()
    with (
        recording(run, domain_id, "operator=console") as process,
        playwright.sync_playwright() as p,
    ):
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_init_script(HEADSET)
        link = wait_for(
            lambda: link_file(run).is_file() and link_file(run).read_text(), 60.0, "link"
        )
        page.goto(link.strip().replace("enter?", "enter?page=xr&"))
        page.click("#seat-button")
        wait_for(lambda: page.evaluate("robotRL.mine"), 20.0, "robotRL.mine")
        page.click("#enter")
        wait_for(
            lambda: page.evaluate("robotRL.session !== null"), 20.0, "robotRL.session !== null"
        )
        page.evaluate("device.press(4)")
        wait_for(lambda: page.evaluate("robotRL.yaw !== null"), 20.0, "robotRL.yaw !== null")
        page.evaluate("device.release(4)")
        no_jump(recorded(run, HeadsetHand(domain_id, page), process))
        browser.close()


def test_a_person_guides_the_arm_by_hand_and_the_measured_motion_is_recorded(run: Path) -> None:
    domain_id = new_domain()
    with recording(run, domain_id, "operator=kinesthetic") as process:
        steps = recorded(run, PushingHand(domain_id, run), process)
    guided = [s for s in steps if s.driver is Driver.DEMO]
    way_m = sum(np.linalg.norm(s.action[:3]) * ACTION.translation_m for s in guided)
    assert way_m > 0.02  # the command was always to stay: what is recorded is the motion
    assert max(np.linalg.norm(s.action[:3]) for s in guided) <= np.sqrt(3)


def test_a_leader_that_is_unplugged_in_mid_takeover_stops_the_arm(run: Path) -> None:
    domain_id, signs = new_domain(), GELLO_SIGNS["ur5e"]
    bus, zero_rad = DynamixelBus(range(1, 8)), np.zeros(6)
    leader_map.save(map_name("gello", bus.path), LeaderMap(zero_rad=(0.0,) * 6, signs=signs))
    with recording(run, domain_id, "operator=gello", f"operator.port={bus.path}") as process:
        more = {"bus": bus, "zero_rad": zero_rad, "signs": signs}
        hand = ServoHand(domain_id, run, CHAIN, HOME.copy(), brought=True, **more)
        hand.fastest_m_s = 0.02  # far from the goal when the plug is pulled
        give_up_s = time.monotonic() + 90.0
        began_at = None
        while hand.led_s < 1.6 and time.monotonic() < give_up_s:
            hand.turn()
            if hand.led_s == 0.0 and hand.probe.newest(topics.CURRENT_POSE) is not None:
                began_at = hand.probe.tcp()
            time.sleep(0.02)
        report = hand.probe.report()
        assert report is not None and (report.mode, report.reason) == ("run", "")
        led_m = np.linalg.norm(hand.probe.tcp().position_m - began_at.position_m)
        assert led_m > 0.003, "the robot does not follow the leader"
        bus.unplug()
        began_s = time.monotonic()

        def held() -> bool:
            hand.press(["drive"])
            report = hand.probe.report()
            return report is not None and report.reason.startswith("operator_silent")

        wait_for(held, 2.0, lambda: f"the gate holds: {hand.probe.report()}")
        log.info("held %.0f ms after the plug was pulled", 1e3 * (time.monotonic() - began_s))
        before = hand.probe.tcp()
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s:
            hand.press(["drive"])
            time.sleep(0.02)
        after = hand.probe.tcp()
        assert np.linalg.norm(after.position_m - before.position_m) < 0.005
        assert np.linalg.norm(rotation_error(after, before)) < 0.02
        words = (run / "logs" / "operator.log").read_text()
        assert "is gone" in words
        hand.probe.close()
        process.terminate()
