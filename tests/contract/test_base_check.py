"""`robot-rl base check` against stand-ins of the servers: what fits, and what does not.

The stand-ins refuse in the words of the real servers (`tests.support.policy_servers`).
"""

from __future__ import annotations

import json
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, LinkError
from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base import served
from robot_rl.policy.base.fit import Fit
from robot_rl.policy.base.listening import Listener, listener_at
from robot_rl.policy.base.schedule import AsyncSchedule, longest_answer_ticks
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.run.check_base import Report, check_base
from robot_rl.run.experiment import Experiment
from robot_rl.spec import Spec
from tests.support.policy_servers import Groot, Openpi, OpenVla, StandIn

pytest.importorskip("websockets")
pytest.importorskip("cv2")

TASK = ("experiment=lift_pixels", "base.prompt=lift the cube")
STATE = 19  # numbers of that task's state
WANTS = {"observation/image": 0, "observation/wrist_image": 0, "observation/state": STATE}
WANTS |= {"prompt": -1}
GROOT = {"video.ego_view": 0, "video.wrist": 0, "state.arm": STATE, "language.task": -1}
CHUNK = np.linspace(-0.9, 0.9, 10 * 7).reshape(10, 7).astype(np.float32)
WITH_NAN = np.where(np.arange(7) == 2, np.nan, CHUNK)
WIDE = np.linspace(-0.9, 0.9, 10 * 8).reshape(10, 8).astype(np.float32)
COLUMNS = "base.columns=[0,1,2,3,4,5,7]"
WIDE_WITH_NAN = np.where(np.arange(8) == 6, np.nan, WIDE)  # in the one that `COLUMNS` leaves out


def check(kind: str, server: StandIn, *words: str, asks: int = 2) -> Report:
    with server:
        return check_base(kind, f"127.0.0.1:{server.port}", words or TASK, asks=asks)


def found(report: Report, fit: Fit = Fit.NO) -> dict[str, str]:
    """What does not fit: topic -> all its words."""
    return {
        f.topic: " ".join((f.said, f.expected, f.got, f.fix))
        for f in report.findings
        if f.fit is fit
    }


# -- what fits -------------------------------------------------------------------------------------


def test_an_openpi_server_that_fits_ends_in_the_line_that_trains_on_it() -> None:
    server = Openpi(WANTS, CHUNK)
    report = check("openpi", server)
    assert report.fits and not found(report)
    words = shlex.split(report.line)
    assert words[:2] == ["robot-rl", "train"]
    base = Experiment.compose(words[2:]).section("base")
    assert (base.host, base.port, base.chunk) == ("127.0.0.1", server.port, 10)
    assert base.inputs == {
        "prompt": "prompt",
        "observation/image": "image/front",
        "observation/wrist_image": "image/wrist",
        "observation/state": "state",
    }
    asked = server.heard[-1]  # as it went over the wire
    assert list(asked["observation/state"][b"shape"]) == [STATE]
    assert list(asked["observation/image"][b"shape"]) == [224, 224, 3]


def test_a_groot_server_says_itself_what_it_wants() -> None:
    report = check("groot", Groot(GROOT, WIDE), *TASK, COLUMNS)
    assert report.fits, found(report)
    base = Experiment.compose(shlex.split(report.line)[2:]).section("base")
    assert base.inputs["video.ego_view"] == "image/front"
    assert base.inputs["video.wrist"] == "image/wrist"
    assert base.actions == ("arm", "hand") and base.chunk == 10


def test_what_the_server_does_not_say_is_asked_of_the_person() -> None:
    asked = found(check("openpi", Openpi(WANTS, CHUNK)), Fit.UNSAID)
    assert {"camera", "state", "action", "units", "rate"} <= set(asked)
    assert "changes from tick to tick" in asked["action"]
    given = "base.inputs={observation/image: image/front, observation/wrist_image: image/wrist, "
    given += "observation/state: state, prompt: prompt}"
    bounds = "base.low=[-1,-1,-1,-1,-1,-1,-1]", "base.high=[1,1,1,1,1,1,1]"
    server = Openpi(WANTS, CHUNK)
    server.metadata = {"fps": 10}
    asked = found(check("openpi", server, *TASK, given, *bounds), Fit.UNSAID)
    assert set(asked) == {"state", "action"}


# -- what does not ---------------------------------------------------------------------------------


def test_a_state_of_another_length_is_named_with_both_lengths() -> None:
    no = found(check("openpi", Openpi(WANTS | {"observation/state": 8}, CHUNK)))
    assert set(no) == {"state"} and "a state of 8 numbers" in no["state"] and "19" in no["state"]
    report = check("groot", Groot(GROOT | {"state.arm": 7}, WIDE), *TASK, COLUMNS)
    no = found(report)
    assert set(no) == {"state"} and "7 numbers" in no["state"] and not report.line


def test_a_camera_that_the_task_does_not_have_is_named() -> None:
    no = found(check("openpi", Openpi(WANTS, CHUNK), "experiment=lift", "base.prompt=x"))
    assert set(no) == {"camera"} and "observation/image" in no["camera"]
    assert "task.images" in no["camera"]
    no = found(check("groot", Groot(GROOT, WIDE), "experiment=lift", "base.prompt=x"))
    assert set(no) == {"camera"}


def test_an_instruction_that_is_missing_is_asked_for() -> None:
    for kind, server in (("openpi", Openpi(WANTS, CHUNK)), ("groot", Groot(GROOT, WIDE))):
        no = found(check(kind, server, TASK[0]))
        assert set(no) == {"instruction"} and "base.prompt" in no["instruction"]


def test_an_input_that_the_policy_does_not_know_is_named() -> None:
    inputs = "base.inputs={video.front: image/front, state.arm: state, language.task: prompt}"
    no = found(check("groot", Groot(GROOT, WIDE), *TASK, inputs))
    assert "video.front" in no["server"] and "video.ego_view" in no["server"]


@pytest.mark.parametrize(
    ("chunk", "words", "topic", "says"),
    [
        (WITH_NAN, (), "action", "NaN or infinity in column 2;"),
        (WIDE, (), "action", "base.columns=[0,1,2,3,4,5,6]"),
        (WIDE_WITH_NAN, (), "action", "base.columns=[0,1,2,3,4,5,6]"),
        (CHUNK[:, :5], (), "action", "5 numbers"),
        (CHUNK * 3.0, (), "units", "base.low"),
        (CHUNK, ("base.chunk=50",), "chunk", "base.chunk=10"),
        (CHUNK[:1], (), "latency", "chunk of 1"),
        (CHUNK[:, None], (), "", "no chunk of actions"),
    ],
)  # fmt: skip
def test_actions_that_do_not_fit(
    chunk: NDArray, words: tuple[str, ...], topic: str, says: str
) -> None:
    server = Openpi(WANTS, chunk)
    if not topic:
        with pytest.raises(LinkError, match=says):
            check("openpi", server, *TASK, *words)
        return
    report = check("openpi", server, *TASK, *words)
    no = found(report)
    assert set(no) == {topic} and says in no[topic] and not report.line


def test_a_column_that_is_left_out_may_be_anything() -> None:
    assert check("openpi", Openpi(WANTS, WIDE_WITH_NAN), *TASK, COLUMNS).fits


@pytest.mark.parametrize(
    ("representation", "fits"), [("DELTA", True), ("ABSOLUTE", False), ("RELATIVE", False)]
)
def test_absolute_actions_do_not_fit_where_the_server_says_so(
    representation: str, fits: bool
) -> None:
    server = Groot(GROOT, WIDE)
    server.representation = representation
    no = found(check("groot", server, *TASK, COLUMNS))
    assert ("action" not in no) == fits
    server = Groot(GROOT, WIDE)
    server.frames = 2
    assert "2 frames" in found(check("groot", server, *TASK, COLUMNS))["camera"]


def test_small_numbers_look_like_metres_and_the_gripper_like_0_to_1() -> None:
    chunk = CHUNK * 0.02
    chunk[:, 6] = np.linspace(0.0, 1.0, 10)
    asked = found(check("openpi", Openpi(WANTS, chunk)), Fit.UNSAID)
    assert "may be metres" in asked["units"] and "base.high=[0.03,0.03" in asked["units"]
    assert "0 to 1" in asked["gripper"]


def test_a_rate_that_the_server_says_is_compared() -> None:
    server = Openpi(WANTS, CHUNK)
    server.metadata = {"fps": 20}
    no = found(check("openpi", server))
    assert set(no) == {"rate"} and "task.control_hz=20" in no["rate"]


def test_a_plan_that_comes_too_late_does_not_fit_and_one_in_time_says_what_is_skipped() -> None:
    server = Openpi(WANTS, CHUNK[:4])
    server.delay_s = 0.25  # 3 ticks of 0.1 s; a chunk of 4 bears 2
    no = found(check("openpi", server))
    assert set(no) == {"latency"} and "at most 2 ticks" in no["latency"]
    server = Openpi(WANTS, CHUNK)
    server.delay_s = 0.25
    said = found(check("openpi", server), Fit.YES)["latency"]
    assert "first 3 of 10 actions are skipped" in said and "after 5 ticks" in said


class Late:
    """Answers as many ticks late as the test counts."""

    spec = BaseSpec(chunk=1, action_size=6)

    def __init__(self, chunk: int) -> None:
        self.spec = BaseSpec(chunk=chunk, action_size=6)
        self.go = threading.Semaphore(1)

    def reset(self) -> None:
        pass

    def sample(self, observation: Any, noise: Any = None) -> NDArray[np.float32]:
        assert self.go.acquire(timeout=20)
        return np.zeros((self.spec.chunk, 6), np.float32)


@pytest.mark.parametrize(("chunk", "ahead"), [(1, 1), (4, 1), (5, 1), (10, 1), (10, 3), (11, 3)])
def test_the_longest_answer_is_the_one_that_the_schedule_bears(chunk: int, ahead: int) -> None:
    def runs_out(answer_ticks: int) -> bool:
        base = Late(chunk)
        schedule = AsyncSchedule(base, execute=chunk, ahead=ahead, blend=0, first_s=5.0)
        schedule.begin_episode()
        asked_at = None
        try:
            for tick in range(60):
                if schedule._asked is not None and asked_at is None:
                    asked_at = tick - 1
                if asked_at is not None and tick - asked_at >= answer_ticks:
                    base.go.release()
                    assert schedule._asked is not None
                    schedule._asked.exception(timeout=5)
                    asked_at = None
                schedule.annotate({})
                if schedule.problem:
                    return True
            return False
        finally:
            base.go.release(100)
            schedule.close()

    limit = longest_answer_ticks(chunk, ahead)
    assert not limit or not runs_out(limit)
    assert runs_out(limit + 1)


# -- LeRobot's policies, behind our own server -----------------------------------------------------


class LeRobot:
    """What `LeRobotBase` says of itself."""

    spec = BaseSpec(10, 7, (10, 32))

    def __init__(self, kind: str = "smolvla", state: int = STATE, **more: Any) -> None:
        inputs = {
            "observation.images.top": {"shape": [3, 256, 256], "from": "image/front"},
            "observation.state": {"shape": [state], "from": "state"},
            "task": {"shape": [], "from": "prompt"},
        }
        self.said = {"type": kind, "inputs": inputs, "prompt": "lift", "image_size": 0, **more}

    def description(self) -> dict[str, Any]:
        return self.said

    def sample_many(self, observation: Any, noise: Any = None) -> NDArray[np.float32]:
        return np.repeat(CHUNK[None], len(observation["state"]), 0)


@contextmanager
def serving(policy: Any, folder: Path, spec: Spec | None = None) -> Iterator[int]:
    make_keys(folder, served.NAMES)
    spec = spec or Experiment.compose(["experiment=lift_pixels"]).task.spec
    stop, ready, ports = threading.Event(), threading.Event(), []

    def run() -> None:
        where = LinkConfig(host="127.0.0.1", port=0)
        with served.PolicyServer(policy, spec, load_keys(folder, "policy"), where) as server:
            ports.append(server.port)
            ready.set()
            served.serve(server, stop)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        yield ports[0]
    finally:
        stop.set()
        thread.join()


def check_served(kind: str, policy: Any, folder: Path, spec: Spec | None = None) -> Report:
    with serving(policy, folder, spec) as port:
        words = ["experiment=lift_pixels", f"base.folder={folder}"]
        return check_base(kind, f"127.0.0.1:{port}", words, asks=2)


def test_a_smolvla_behind_our_server_fits(tmp_path: Path) -> None:
    report = check_served("smolvla", LeRobot(), tmp_path)
    assert report.fits, found(report)
    assert "base=served" in report.line and f"base.folder={tmp_path}" in report.line
    yes = found(report, Fit.YES)
    assert "smolvla" in yes["server"] and "noise" in yes["server"]
    assert "wrist" in yes["camera"]  # that it does not look at


def test_another_policy_than_was_meant_is_named(tmp_path: Path) -> None:
    act = LeRobot("act")
    no = found(check_served("smolvla", act, tmp_path / "a"))
    assert set(no) == {"server"} and "base check lerobot" in no["server"]
    no = found(check_served("smolvla", LeRobot(""), tmp_path / "nameless"))
    assert "does not say" in no["server"]
    no = found(check_served("lerobot", act, tmp_path / "b"))
    assert set(no) == {"camera"} and "256x256" in no["camera"]  # ACT does not rescale
    no = found(check_served("lerobot", LeRobot(state=6), tmp_path / "c"))
    assert set(no) == {"state"} and "6 numbers" in no["state"]


def test_a_policy_served_for_another_task_does_not_fit(tmp_path: Path) -> None:
    other = Experiment.compose(["experiment=lift"]).task.spec
    no = found(check_served("lerobot", LeRobot(), tmp_path, other))
    assert "something else" in no["server"] and "image/front" in no["server"]


# -- nobody, or somebody else ----------------------------------------------------------------------


@contextmanager
def listening(says: bytes | None) -> Iterator[int]:
    """A port at which somebody says something; None = nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def run() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                kept.append(line)
                if says:
                    line.sendall(says)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for line in kept:
            line.close()


SETTINGS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"  # as grpcio 1.7x begins


def test_who_listens_is_known_by_the_first_bytes(tmp_path: Path) -> None:
    with Openpi() as a, Groot() as b, OpenVla() as c, serving(LeRobot(), tmp_path) as d:
        ports = [a.port, b.port, c.port, d]
        speak = [listener_at("127.0.0.1", port, 2.0) for port in ports]
    assert speak == [Listener.HTTP, Listener.ZEROMQ, Listener.HTTP, Listener.CURVE]
    with listening(SETTINGS) as grpc, listening(b"SSH-2.0-OpenSSH_9.6\r\n") as ssh:
        assert listener_at("127.0.0.1", grpc, 2.0) is Listener.GRPC
        assert listener_at("127.0.0.1", ssh, 2.0) is Listener.OTHER


@pytest.mark.parametrize(
    ("kind", "server", "fix"),
    [
        ("groot", Openpi, "base check openpi"),
        ("openpi", Groot, "base check groot"),
        ("smolvla", Groot, "base check groot"),
    ],
)
def test_a_server_of_another_kind_is_named(kind: str, server: type[StandIn], fix: str) -> None:
    with pytest.raises(LinkError, match="is no") as error:
        check(kind, server(), TASK[0])
    assert fix in error.value.fix


def test_lerobots_own_server_is_refused_with_the_reason() -> None:
    with listening(SETTINGS) as port, pytest.raises(LinkError) as error:
        check_base("lerobot", f"127.0.0.1:{port}", TASK[:1])
    assert "pickles" in error.value.fix and "serve-policy" in error.value.fix


def test_http_that_is_no_websocket_is_another_protocol() -> None:
    with pytest.raises(LinkError, match="another protocol") as error:
        check("openpi", OpenVla())
    assert "websocket" in error.value.got


def test_nobody_and_silence_are_one_clear_error_in_time() -> None:
    with pytest.raises(LinkError, match="nobody can be reached"):
        check_base("openpi", "127.0.0.1:1", TASK)
    with pytest.raises(LinkError, match="nobody can be reached"):
        check_base("openpi", "no-such-host.invalid", TASK)
    began_s = time.monotonic()
    with listening(None) as port, pytest.raises(LinkError, match="says nothing") as error:
        check_base("openpi", f"127.0.0.1:{port}", [*TASK, "base.timeout_s=0.6"])
    assert "0.6 s" in error.value.expected and time.monotonic() - began_s < 5.0
    for kind, server in (("openpi", Openpi(WANTS, CHUNK)), ("groot", Groot(GROOT, WIDE))):
        server.delay_s = 1.5
        with pytest.raises(LinkError, match="does not answer"):
            check(kind, server, *TASK, COLUMNS, "base.timeout_s=0.3")


@pytest.mark.parametrize("stand_in", [Openpi, Groot])
def test_garbage_is_one_clear_error(stand_in: Any) -> None:
    kind = stand_in.words["name"]
    for garbage in (g for g in stand_in.garbage if isinstance(g, bytes)):
        server = stand_in(WANTS if kind == "openpi" else GROOT)
        server.answer = garbage
        try:
            report = check(kind, server)
        except LinkError as error:
            assert error.fix, garbage
        else:
            assert not report.fits, garbage


@pytest.mark.parametrize(
    ("kind", "where", "words", "match"),
    [
        ("opnpi", "x", TASK, "no kind of server"),
        ("openpi", "http://x:80", TASK, "no address"),
        ("openpi", "x:99999", TASK, "no address"),
        ("openpi", "x", (), "for which task"),
        ("openpi", "x", (*TASK, "base=groot"), "said by KIND"),
        ("openpi", "x", (*TASK, "base.chnk=5"), "chnk"),
        ("lerobot", "x", TASK, "base.prompt"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_asked(
    kind: str, where: str, words: tuple[str, ...], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        check_base(kind, where, words)


# -- the verb --------------------------------------------------------------------------------------


def test_the_page_says_it_all_and_the_exit_status_is_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Openpi(WANTS, CHUNK) as server:
        server.metadata = {"name": "evil\x1b[31m [bold]markup[/bold]"}
        where = f"127.0.0.1:{server.port}"
        out = tmp_path / "check.json"
        words = ["base", "check", "openpi", where, *TASK, "--asks", "2"]
        assert main([*words, "--json", str(out)]) == 0
        page = capsys.readouterr().out
        assert "robot-rl train experiment=lift_pixels" in page and "\x1b" not in page
        assert "[bold]markup[/bold]" in page
        assert len(page.splitlines()) < 70
        figures = json.loads(out.read_text())
        assert figures["fits"] is True and len(figures["latency_s"]) == 2
        assert main([*words, "base.chunk=50"]) == 1
        page = capsys.readouterr().out
        assert "expected: base.chunk=50" in page and "robot-rl train" not in page
    with Openpi(WANTS, CHUNK) as server:
        server.answer = "KeyError: 'camera\x1b[2J'"
        assert main(["base", "check", "openpi", f"127.0.0.1:{server.port}", *TASK]) == 1
        server.answer = b"\x81\xa1\x1b\x01"  # a map with the key \x1b
        assert main(["base", "check", "openpi", f"127.0.0.1:{server.port}", *TASK]) == 2
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err and "another protocol" in said.err
    assert main(words) == 2
    assert "nobody can be reached" in capsys.readouterr().err
    assert main(["base", "chek"]) == 2
    assert "did you mean 'check'" in capsys.readouterr().err


def test_it_needs_neither_a_simulator_nor_ros() -> None:
    before = {name for name in ("mujoco", "rclpy") if name in sys.modules}
    check("openpi", Openpi(WANTS, CHUNK))
    assert {name for name in ("mujoco", "rclpy") if name in sys.modules} == before
