"""`robot-rl leader` with servos on a pseudo terminal; `robot-rl keys --page`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dynamixel_sdk", reason="pip install 'robot-rl[leader]'")

from robot_rl.cli.main import main
from robot_rl.robots import Ur5e
from robot_rl_hardware import leader_map
from robot_rl_hardware.leader import GELLO_SIGNS, map_name
from tests.support.servos import Bus, DynamixelBus, FeetechBus


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


class Person(io.StringIO):
    """Presses Enter after having done what the line asks for."""

    def __init__(self, *does: Callable[[], None]) -> None:
        super().__init__()
        self._does = list(does)

    def readline(self, *_: int) -> str:
        if not self._does:
            return ""
        self._does.pop(0)()
        return "\n"


def put(bus: Bus, radians: np.ndarray) -> None:
    ticks = radians / (2 * np.pi) * 4096
    bus.ticks |= {i + 1: round(t) for i, t in enumerate(ticks.tolist())}


@pytest.fixture
def gello() -> Iterator[Bus]:
    bus = DynamixelBus(range(1, 8))
    yield bus
    bus.unplug()


def test_a_gello_is_calibrated_from_its_home_pose(
    gello: Bus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zero, signs = np.pi / 2 * np.array((2, 1, 0, -2, 3, 1)), np.array(GELLO_SIGNS["ur5e"])
    near = np.array(Ur5e().home_rad) + np.array((0.1, -0.1, 0.05, 0.0, 0.2, -0.2))
    pose = lambda: put(gello, zero + signs * near)  # noqa: E731
    turned = lambda: put(gello, zero + signs * (near + np.radians(20.0)))  # noqa: E731
    opened = lambda: gello.ticks.update({7: 2000})  # noqa: E731
    pulled = lambda: gello.ticks.update({7: 2600})  # noqa: E731
    monkeypatch.setattr("sys.stdin", Person(pose, turned, opened, pulled))
    words = ["leader", "gello", "--robot", "ur5e", "--port", gello.path]
    assert main([*words, "--calibrate"]) == 0
    said = capsys.readouterr().out
    assert "joint 1: the tool goes left" in said and "joint 6: the tool turns clockwise" in said
    assert "home pose" in said and "beside the pose by +6 -6 +3 +0 +11 -11 deg" in said
    found = leader_map.load(map_name("gello", gello.path), 6)
    assert found.zero_rad == pytest.approx(zero, abs=1e-5)
    assert found.trigger_rad == pytest.approx((3.068, 3.988), abs=1e-3)
    assert main([*words, "--watch", "0.1"]) == 0
    assert "trigger 100 %" in capsys.readouterr().out


def test_a_servo_that_is_built_in_the_other_way_round_is_found_while_it_is_calibrated(
    gello: Bus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = np.array(GELLO_SIGNS["ur5e"]) * (1, -1, 1, 1, 1, 1)
    home = np.array(Ur5e().home_rad)
    pose = lambda: put(gello, built * home)  # noqa: E731
    turned = lambda: put(gello, built * (home + np.radians(20.0)))  # noqa: E731
    idle = lambda: None  # noqa: E731
    pulled = lambda: gello.ticks.update({7: 2600})  # noqa: E731
    words = ["leader", "gello", "--robot", "ur5e", "--port", gello.path, "--calibrate"]
    monkeypatch.setattr("sys.stdin", Person(pose, turned, idle, pulled))
    assert main(words) == 2
    fix = "--signs 1 -1 -1 1 1 1"
    assert fix in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Person(pose, turned, idle, pulled))
    assert main([*words, *fix.split()]) == 0
    assert leader_map.load(map_name("gello", gello.path), 6).signs == tuple(built)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gelo"], "unknown leader 'gelo'"),
        (["gello", "--port", "PORT", "--robot", "ur5e"], "has not been calibrated"),
        (["gello", "--port", "/dev/nothing"], "cannot be opened"),
        (["gello", "--port", "PORT", "--robot", "fr3"], "no answer from servo 8"),
        (["gello", "--port", "PORT", "--robot", "ur5e", "--calibrate"], "somebody at the keyboard"),
        (
            ["gello", "--port", "PORT", "--robot", "ur5e", "--calibrate", "--signs", "1", "2"],
            "not the signs",
        ),
        (["so101", "--port", "adapter"], "cannot be opened"),
    ],
)
def test_what_cannot_work_is_one_error_with_the_fix(
    gello: Bus,
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", Person())
    assert main(["leader", *(gello.path if w == "PORT" else w for w in words)]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("error:") == 1 and "fix:" in error


def test_an_so101_that_is_moved_while_it_is_measured_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bus = FeetechBus(range(1, 7))
    answer = bus._answers

    def drifting(*args: object) -> bytes:
        bus.ticks[2] += 20
        return answer(*args)  # type: ignore[arg-type]

    bus._answers = drifting  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", Person(lambda: None))
    assert main(["leader", "so101", "--port", bus.path, "--calibrate"]) == 2
    assert "was moved while it was measured" in capsys.readouterr().err
    bus.unplug()


# --- the page's certificate ----------------------------------------------------------------------


def test_a_certificate_is_made_and_never_replaced_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="the console extra is not installed")
    words = ["keys", str(tmp_path / "page"), "--page", "robot-pc.lab.example", "10.0.0.5"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "robot-pc.lab.example" in said and "10.0.0.5" in said and "--tls" in said
    before = (tmp_path / "page" / "page.key").read_bytes()
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "page" / "page.key").read_bytes() == before
    assert main([*words, "--force"]) == 0
    assert (tmp_path / "page" / "page.key").read_bytes() != before


@pytest.mark.parametrize("name", ["0.0.0.0", "::", "a b", "*.example", "x" * 64, "1234", ""])
def test_a_name_that_is_none_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="the console extra is not installed")
    assert main(["keys", str(tmp_path), "--page", name]) == 2
    assert "is not a name that a page can be served under" in capsys.readouterr().err


def test_a_spoilt_certificate_is_one_error_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="the console extra is not installed")
    from robot_rl.console.certificate import check_host, load, make
    from robot_rl.errors import ConfigError

    with pytest.raises(ConfigError, match="no certificate of the page"):
        load(tmp_path)
    made, other = make(tmp_path / "a", []), make(tmp_path / "b", [])
    with pytest.raises(ConfigError, match=r"is not for '192\.168\.7\.7'"):
        check_host(made, "192.168.7.7")
    with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' is not a name"):
        check_host(made, "0.0.0.0")
    made.key.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read"):
        load(tmp_path / "a")
    made.key.chmod(0o600)
    made.ca.write_bytes(other.ca.read_bytes())
    with pytest.raises(ConfigError, match="does not hold a certificate") as told:
        load(tmp_path / "a")
    assert told.value.expected and told.value.got and "--force" in told.value.fix


def test_a_certificate_that_is_out_of_date_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="the console extra is not installed")
    from datetime import timedelta

    from robot_rl.console import certificate
    from robot_rl.errors import ConfigError

    monkeypatch.setattr(certificate, "VALID", timedelta(seconds=-1))
    with pytest.raises(ConfigError, match="out of date") as told:
        certificate.make(tmp_path, [])
    assert "--force" in told.value.fix
