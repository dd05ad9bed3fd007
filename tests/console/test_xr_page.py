"""The page of headsets and phones over HTTPS, in a real browser with a WebXR device we play."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.console.certificate import PageCertificate, load, make
from robot_rl.geometry import quat_from_rotvec, quat_multiply, quat_to_matrix
from robot_rl.operate.remote import parse
from tests.support.served import RobotSide, Served, until
from tests.support.xr import HEADSET, PHONE

pytestmark = [pytest.mark.alone, pytest.mark.waits]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> PageCertificate:
    return make(tmp_path_factory.mktemp("tls"), ["robot-pc.local"])


@pytest.fixture
def secure(run_dir: Path, certificate: PageCertificate) -> Iterator[Served]:
    served = Served(run_dir, certificate)
    yield served
    served.close()


def opened(browser: Any, served: Served, device: str, page: str = "xr") -> Any:
    context = browser.new_context(ignore_https_errors=True)
    made = context.new_page()
    made.problems = []
    made.on("pageerror", lambda error: made.problems.append(str(error)))
    made.add_init_script(device)
    made.goto(served.invite().replace("enter?", f"enter?page={page}&"))
    until(lambda: made.evaluate("document.body.dataset.word") != "OFFLINE")
    return made


@pytest.fixture
def headset(browser: Any, secure: Served, robot: RobotSide) -> Iterator[Any]:
    """In the seat, the session started, pointed forward along the browser's own -z."""
    page = opened(browser, secure, HEADSET)
    page.click("#seat-button")
    until(lambda: page.evaluate("robotRL.mine"))
    page.click("#enter")
    until(lambda: page.evaluate("robotRL.session !== null"))
    yield page
    assert page.problems == []
    page.context.close()


def newest(robot: RobotSide) -> dict[str, Any]:
    return robot.heard[-1][1] if robot.heard else {"held": None}


def align(page: Any) -> None:
    page.evaluate("device.press(4)")
    until(lambda: page.evaluate("robotRL.yaw !== null"))
    page.evaluate("device.release(4)")


@pytest.mark.slow
def test_nothing_drives_before_somebody_has_pointed_forward(headset: Any, robot: RobotSide) -> None:
    headset.evaluate("device.press(1)")
    until(lambda: len(robot.heard) > 20)
    assert not any(what["held"] for _, what in robot.heard) and "hand" not in newest(robot)
    assert "forward" in headset.locator("#say").inner_text()
    headset.evaluate("device.release(1)")
    align(headset)
    headset.evaluate("device.press(1)")
    until(lambda: newest(robot)["held"] == ["drive"])


def test_a_hand_that_moves_forward_left_and_up_moves_along_x_y_z_of_the_base(
    headset: Any, robot: RobotSide
) -> None:
    headset.evaluate("device.turn(0.7)")  # the person looks elsewhere than the browser's -z
    align(headset)
    headset.evaluate("device.press(1)")
    before = until(lambda: newest(robot)["held"] == ["drive"] and newest(robot)["hand"])
    for way in ((0.1, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 0.3)):
        headset.evaluate(f"device.move({way[0]}, {way[1]}, {way[2]})")
        wanted = np.array(before[:3]) + way
        until(lambda w=wanted: np.allclose(newest(robot)["hand"][:3], w, atol=1e-6))
        headset.evaluate(f"device.move({-way[0]}, {-way[1]}, {-way[2]})")


def test_forward_is_where_the_ray_points_however_the_grip_lies(headset: Any) -> None:
    headset.evaluate("device.turn(0.3)")
    for pitch, roll in ((0.0, 0.35), (0.8, -0.5), (-0.5, 0.0)):
        headset.evaluate(f"robotRL.yaw = null; device.pitch = {pitch}; device.roll = {roll}")
        align(headset)
        assert headset.evaluate("robotRL.yaw") == pytest.approx(0.3, abs=0.017)
    headset.evaluate("device.pitch = 1.1; device.press(4)")  # steeper than 60 degrees
    until(lambda: "too steeply" in headset.locator("#say").inner_text())
    assert headset.evaluate("robotRL.yaw") is None


def test_another_controller_drives_only_after_its_grip_was_open(
    headset: Any, robot: RobotSide
) -> None:
    align(headset)
    headset.evaluate("device.press(1); device.left.gamepad.buttons[1].pressed = true")
    before = until(lambda: newest(robot)["held"] == ["drive"] and newest(robot)["hand"])
    headset.evaluate("device.sources[0] = device.left")
    until(lambda: robot.commands == ["hold"])
    until(lambda: newest(robot)["hand"][1] == pytest.approx(before[1] + 0.4))
    assert not any(said["held"] and said["hand"][1] > before[1] + 0.1 for _, said in robot.heard), (
        "where the other hand is"
    )
    headset.evaluate("device.left.gamepad.buttons[1].pressed = false")
    until(lambda: headset.evaluate("robotRL.opened"))
    headset.evaluate("device.left.gamepad.buttons[1].pressed = true")
    until(lambda: newest(robot)["held"] == ["drive"])


@pytest.mark.slow
def test_a_hand_that_turns_turns_about_the_axes_of_the_base(headset: Any, robot: RobotSide) -> None:
    headset.evaluate("device.turn(-0.4)")
    align(headset)
    headset.evaluate("device.press(1)")
    before = np.array(until(lambda: newest(robot)["held"] == ["drive"] and newest(robot)["hand"]))
    headset.evaluate("device.turn(0.3)")  # about the vertical, to the left
    wanted = quat_multiply(quat_from_rotvec((0.0, 0.0, 0.3)), before[3:])
    until(
        lambda: np.allclose(
            quat_to_matrix(np.array(newest(robot)["hand"][3:])), quat_to_matrix(wanted), atol=1e-6
        )
    )
    parse(json.dumps(newest(robot)).encode(), 1.0)  # the robot side understands it


@pytest.mark.slow
def test_trigger_and_stop_arrive_and_messages_come_at_fifty_a_second(
    headset: Any, robot: RobotSide
) -> None:
    align(headset)
    headset.evaluate("device.press(1); device.press(0, 0.8)")
    until(lambda: newest(robot)["trigger"] == pytest.approx(0.8))
    count = len(robot.heard)
    headset.wait_for_timeout(1000)
    assert 40 <= len(robot.heard) - count <= 70
    headset.evaluate("device.press(5)")
    until(lambda: "hold" in newest(robot)["held"])


@pytest.mark.parametrize(
    "loss",
    [
        "device.pose = null",
        pytest.param("device.emulated = true", marks=pytest.mark.slow),
        pytest.param("device.session.look('visible-blurred')", marks=pytest.mark.slow),
        pytest.param("device.session.end()", marks=pytest.mark.slow),
    ],
)
def test_a_lost_place_and_a_headset_taken_off_are_silence_and_a_hold(
    headset: Any, robot: RobotSide, loss: str
) -> None:
    align(headset)
    headset.evaluate("device.press(1)")
    until(lambda: newest(robot)["held"] == ["drive"])
    headset.evaluate(loss)
    until(lambda: robot.commands == ["hold"])
    headset.wait_for_timeout(200)
    count = len(robot.heard)
    headset.wait_for_timeout(300)
    assert len(robot.heard) == count


@pytest.mark.slow
def test_a_socket_that_is_lost_in_mid_takeover_is_silence(
    headset: Any, robot: RobotSide, secure: Served
) -> None:
    align(headset)
    headset.evaluate("device.press(1)")
    until(lambda: newest(robot)["held"] == ["drive"])
    until(lambda: headset.evaluate("robotRL.shows") == "driving")
    secure.close()
    count = len(robot.heard)
    headset.wait_for_timeout(300)
    assert len(robot.heard) <= count + 2
    until(lambda: headset.evaluate("robotRL.shows") == "wait")  # no old colour, and no old word
    until(lambda: headset.evaluate("document.body.dataset.word") == "OFFLINE")


@pytest.mark.slow
def test_whoever_leaves_the_seat_while_driving_is_not_heard_any_more(
    headset: Any, robot: RobotSide
) -> None:
    align(headset)
    headset.evaluate("device.press(1)")
    until(lambda: newest(robot)["held"] == ["drive"])
    headset.click("#seat-button")
    until(lambda: not headset.evaluate("robotRL.heard"))
    count = len(robot.heard)
    headset.wait_for_timeout(300)
    assert len(robot.heard) == count and headset.locator("#enter").is_disabled()


@pytest.mark.slow
def test_a_phone_drives_while_a_finger_is_on_the_screen(
    browser: Any, secure: Served, robot: RobotSide
) -> None:
    page = opened(browser, secure, PHONE)
    page.click("#seat-button")
    until(lambda: page.evaluate("robotRL.mine"))
    page.click("#enter")
    page.click("#forward")
    until(lambda: page.evaluate("robotRL.yaw !== null"))
    page.hover("#drive")
    page.mouse.down()
    until(lambda: newest(robot)["held"] == ["drive"])
    page.mouse.up()
    until(lambda: newest(robot)["held"] == [])
    page.click("#grip")
    until(lambda: newest(robot)["trigger"] == 1.0)
    page.context.close()


@pytest.mark.slow
def test_a_browser_without_webxr_says_what_to_use(
    browser: Any, secure: Served, robot: RobotSide
) -> None:
    page = opened(browser, secure, "Object.defineProperty(navigator, 'xr', { value: undefined })")
    page.click("#seat-button")
    until(lambda: page.evaluate("robotRL.mine"))
    until(lambda: "no WebXR" in page.locator("#say").inner_text())
    page.context.close()


@pytest.mark.slow
def test_without_https_the_page_says_so(browser: Any, console: Served, robot: RobotSide) -> None:
    page = opened(
        browser, console, "Object.defineProperty(window, 'isSecureContext', { value: false })"
    )
    page.click("#seat-button")
    until(lambda: page.evaluate("robotRL.mine"))
    until(lambda: "needs HTTPS" in page.locator("#say").inner_text())
    page.context.close()


# --- HTTPS ---------------------------------------------------------------------------------------


def fetch(url: str, trust: ssl.SSLContext, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_device_that_trusts_the_authority_trusts_the_page_and_no_other_does(
    secure: Served, certificate: PageCertificate
) -> None:
    knows = ssl.create_default_context(cafile=str(certificate.ca))
    assert fetch(f"{secure.url}/trust", knows)[0] == 200
    status, told = fetch(f"{secure.url}/ca.crt", knows)
    assert status == 200 and told == certificate.ca.read_bytes()
    assert fetch(secure.url, knows)[0] == 401  # as without HTTPS: a link is needed
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(
            f"{secure.url}/trust", context=ssl.create_default_context(), timeout=5
        )


def test_foreign_hosts_and_origins_are_refused_over_https_as_well(
    secure: Served, certificate: PageCertificate
) -> None:
    knows = ssl.create_default_context(cafile=str(certificate.ca))
    port = secure.url.rpartition(":")[2]
    assert fetch(f"{secure.url}/trust", knows, Host=f"robot-pc.local:{port}")[0] == 200
    assert fetch(f"{secure.url}/trust", knows, Host="evil.example")[0] == 403
    doors = secure.console
    assert doors.foreign(None, f"https://robot-pc.local:{port}") == ""
    assert "foreign origin" in doors.foreign(None, f"http://robot-pc.local:{port}")
    assert "foreign origin" in doors.foreign(None, f"https://evil.example:{port}")


@pytest.mark.slow
def test_the_cookie_is_sent_over_https_only(browser: Any, secure: Served, robot: RobotSide) -> None:
    page = opened(browser, secure, HEADSET)
    (cookie,) = page.context.cookies()
    assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    page.context.close()


def test_without_https_there_is_no_certificate_to_install(console: Served) -> None:
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(f"{console.url}/ca.crt", timeout=5)
    assert told.value.code == 404


def test_the_files_are_what_they_should_be(certificate: PageCertificate) -> None:
    assert certificate.key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in certificate.ca.read_bytes() + certificate.chain.read_bytes()
    assert {"localhost", "127.0.0.1", "::1", "robot-pc.local"} <= set(certificate.names)
    assert load(certificate.key.parent) == certificate and certificate.days == 397
