"""Two sides of a pairing over real CURVE sockets: who gets in, what is told, what may be lost."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from robot_rl.bench.samples import sample_spec
from robot_rl.errors import ConfigError, LinkError
from robot_rl.link import pairing
from robot_rl.link.auth import Keys, load_keys, make_keys
from robot_rl.link.frames import Accepted, Hello, Message, Offer, Paired, Refused, decode, encode
from robot_rl.link.invitation import Invitation, new_invitation
from robot_rl.link.pairing import Inviter, await_robot
from tests.support.pairs import free_port, until

SPEC = sample_spec()
LEARNER, _ = zmq.curve_keypair()
ACCEPTED = Accepted(LEARNER.decode(), "gpu-box")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "TRY_S", 0.5)
    monkeypatch.setattr(pairing, "HINT_S", 0.5)


class Robot:
    """The robot's side, with its keys."""

    def __init__(self, folder: Path, lasts_s: float = 20.0) -> None:
        make_keys(folder, ("actor",))
        self.keys = load_keys(folder, "actor")
        self.invitation = new_invitation("127.0.0.1", free_port(), SPEC.hash, self.keys.public)
        actors = {"actor": self.keys.public.decode()}
        self.offer = Offer("run-1", "1.0", {"seed": 1}, "ab", SPEC.as_dict(), actors)
        self.kept: list[tuple[str, str]] = []
        self.inviter = Inviter(
            self.invitation, self.keys, self.offer, lambda *w: self.kept.append(w), lasts_s
        )


def learner(
    invitation: Invitation,
    take: Callable[[Offer], Accepted] = lambda _offer: ACCEPTED,
    lasts_s: float = 20.0,
) -> Offer:
    return await_robot(invitation, "127.0.0.1", take, lambda _text: None, lasts_s)


@pytest.mark.parametrize("first", ["robot", "learner"])
def test_two_machines_become_a_pair_whoever_is_first(first: str, tmp_path: Path) -> None:
    robot, got = Robot(tmp_path / "keys"), []
    waiting = threading.Thread(target=lambda: got.append(learner(robot.invitation)))
    if first == "learner":
        waiting.start()
        time.sleep(0.3)
    with robot.inviter:
        if first == "robot":
            time.sleep(1.0)
            assert "nobody listens" in robot.inviter.state
            waiting.start()
        waiting.join(30.0)
        until(lambda: robot.inviter.over)
    assert got == [robot.offer] and robot.kept == [(LEARNER.decode(), "gpu-box")]
    assert robot.inviter.paired and robot.inviter.state == "paired with gpu-box"


def test_an_answer_that_is_lost_comes_again_and_the_run_is_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot, taken, dropped = Robot(tmp_path / "keys"), [], []
    reply = pairing._reply

    def lossy(router: object, routing: bytes, message: Message, sequence: int) -> None:
        if isinstance(message, Accepted) and len(dropped) < 2:
            dropped.append(message)
        else:
            reply(router, routing, message, sequence)  # type: ignore[arg-type]

    def take(offer: Offer) -> Accepted:
        taken.append(offer)
        return ACCEPTED

    monkeypatch.setattr(pairing, "_reply", lossy)
    with robot.inviter:
        assert learner(robot.invitation, take) == robot.offer
    assert len(dropped) == 2 and len(taken) == 1 and len(robot.kept) == 1


def test_the_last_two_messages_may_be_lost_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot, reply = Robot(tmp_path / "keys"), pairing._reply

    def lossy(router: object, routing: bytes, message: Message, sequence: int) -> None:
        if not isinstance(message, Paired):
            reply(router, routing, message, sequence)  # type: ignore[arg-type]

    monkeypatch.setattr(pairing, "_reply", lossy)
    monkeypatch.setattr(pairing, "CONFIRM_S", 1.0)
    with robot.inviter:
        assert learner(robot.invitation) == robot.offer
        until(lambda: robot.inviter.over)
    assert robot.inviter.paired and robot.inviter.state == "paired with gpu-box"
    silent = Robot(tmp_path / "silent")
    monkeypatch.setattr(Inviter, "_confirm", lambda *_: None)
    with silent.inviter:
        assert learner(silent.invitation) == silent.offer and silent.inviter.paired


def test_a_machine_that_cannot_take_the_run_says_why_on_both_sides(tmp_path: Path) -> None:
    robot = Robot(tmp_path / "keys")

    def take(_offer: Offer) -> Accepted:
        raise ConfigError("unknown task 'mine'", expected="a task", got="'mine'", fix="install it")

    with robot.inviter:
        with pytest.raises(ConfigError, match="unknown task 'mine'"):
            learner(robot.invitation, take)
        until(lambda: "unknown task 'mine'" in robot.inviter.state)
        assert not robot.inviter.over and not robot.kept
        assert learner(robot.invitation) == robot.offer  # the string is still good


def test_a_refusal_that_is_lost_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the robot's side has just given up one try, and its offer is read after that."""
    robot, dropped, reply = Robot(tmp_path / "keys"), [], pairing._reply

    def lossy(router: object, routing: bytes, message: Message, sequence: int) -> None:
        if isinstance(message, Refused) and len(dropped) < 2:
            dropped.append(message)
        else:
            reply(router, routing, message, sequence)  # type: ignore[arg-type]

    def take(_offer: Offer) -> Accepted:
        raise ConfigError("unknown task 'mine'", expected="a task", got="'mine'", fix="install it")

    monkeypatch.setattr(pairing, "_reply", lossy)
    with robot.inviter:
        with pytest.raises(ConfigError, match="unknown task 'mine'"):
            learner(robot.invitation, take)
        assert len(dropped) == 2 and "unknown task 'mine'" in robot.inviter.state


def test_an_invitation_ends_with_its_time_and_without_any_clock_of_the_other_side(
    tmp_path: Path,
) -> None:
    robot = Robot(tmp_path / "keys", lasts_s=0.3)
    with robot.inviter:
        until(lambda: robot.inviter.over)
    assert robot.inviter.state == "the invitation has expired" and not robot.inviter.paired
    hints: list[str] = []
    with pytest.raises(
        LinkError, match=r"(?s)no robot has come.*works once.*robot-rl pair RUN"
    ) as e:
        await_robot(robot.invitation, "127.0.0.1", lambda _o: ACCEPTED, hints.append, 1.0)
    assert f"TCP port {robot.invitation.port} open" in e.value.fix
    assert len(hints) == 1 and "ufw" in hints[0]


def test_a_used_invitation_is_good_for_nothing(tmp_path: Path) -> None:
    robot = Robot(tmp_path / "keys")
    with robot.inviter:
        learner(robot.invitation)
        until(lambda: robot.inviter.over)
        with pytest.raises(LinkError, match="no robot has come"):
            learner(robot.invitation, lasts_s=1.5)
    assert len(robot.kept) == 1


def test_strangers_get_nothing_from_either_side(tmp_path: Path) -> None:
    """Neither who has not the robot's key, nor who listens without the string's secret."""
    robot, seen = Robot(tmp_path / "keys"), []
    make_keys(tmp_path / "other", ("actor",))
    stranger = load_keys(tmp_path / "other", "actor")

    def take(offer: Offer) -> Accepted:
        seen.append(offer.run)
        return ACCEPTED

    thread = threading.Thread(target=lambda: learner(robot.invitation, take))
    thread.start()
    time.sleep(0.2)
    forged = dataclasses.replace(robot.offer, run="forged")
    for keys, server in ((stranger, robot.invitation.public), (None, None)):
        assert ask(robot.invitation, keys, server, encode(forged)) is None
    with robot.inviter:
        thread.join(30.0)
    assert seen == ["run-1"]

    another = Robot(tmp_path / "second")
    thief = dataclasses.replace(another.invitation, secret=new_secret())
    with another.inviter:
        with pytest.raises(LinkError, match="no robot has come"):
            learner(thief, take, lasts_s=2.0)
        until(lambda: "nobody listens" in another.inviter.state)
    assert seen == ["run-1"] and not another.kept


def new_secret() -> bytes:
    return zmq.curve_keypair()[1]


def ask(
    invitation: Invitation, keys: Keys | None, server: bytes | None, *frames: bytes
) -> Message | None:
    """One question of a bare socket."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        if keys is not None and server is not None:
            peer.curve_publickey, peer.curve_secretkey = keys.public, keys.secret
            peer.curve_serverkey = server
        peer.connect(f"tcp://{invitation.host}:{invitation.port}")
        peer.send_multipart(list(frames))
        return decode(peer.recv())[1] if peer.poll(500) else None


def test_nonsense_of_the_robots_key_is_dropped_and_the_pairing_goes_on(tmp_path: Path) -> None:
    robot = Robot(tmp_path / "keys")
    thread = threading.Thread(target=lambda: learner(robot.invitation))
    thread.start()
    hello = encode(Hello("actor", SPEC.hash, SPEC.as_dict(), "run", "actor-0", ()))
    for frames in ((b"",), (b"\x80\x04\x95",), (hello,), (hello, hello), (encode(Paired("x")),)):
        assert ask(robot.invitation, robot.keys, robot.invitation.public, *frames) is None
    with robot.inviter:
        thread.join(30.0)
        until(lambda: robot.inviter.over)
    assert robot.inviter.paired


def test_a_port_that_is_taken_is_said_before_anybody_waits(tmp_path: Path) -> None:
    robot = Robot(tmp_path / "keys")
    with (
        socket.create_server(("127.0.0.1", robot.invitation.port)),
        pytest.raises(LinkError, match="the port is in use"),
    ):
        learner(robot.invitation)
