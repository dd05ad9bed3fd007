"""Two machines become a pair: the robot's offers its run, the learner's takes it.

    robot (CURVE client)            learner (CURVE server, with the one-time key of the string)
        OFFER  run, config, keys ->
                                 <- ACCEPTED  its public key   | REFUSED  why
        PAIRED | REFUSED         ->  the robot's machine has kept the key | has read why
                                 <- PAIRED                     | REFUSED

The learner listens where it will serve the link, and the robot connects: the direction of the link,
so one open port on one machine is enough, and the robot may be behind a router. Both sides prove
who they are in the CURVE handshake, before a byte of a message: the learner by the one-time key,
the robot by the key that the string names. Each message may come twice; the answer is the same.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import zmq

from robot_rl.errors import CodecError, LinkError, RobotRLError
from robot_rl.link.auth import Keys, guard, listen
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Accepted, Message, Offer, Paired, Refused, decode, encode
from robot_rl.link.invitation import Invitation

log = logging.getLogger(__name__)

LASTS_S = 600.0  # of an invitation: time to walk to the other machine
TRY_S = 5.0  # one connection of the robot's side; a refused port is tried again within it
MAX_OFFER = 4 << 20  # bytes; a configuration is some 10 kB
MAX_ANSWER = 1 << 16
HINT_S = 20.0  # the learner says what may be wrong when nobody has come by then
PROBE_S = 2.0
CONFIRM_S = 30.0  # for the last two messages; without them the pair is complete, too


class Inviter:
    """The robot's side: a thread that offers the run until it is taken, or the time is up.

    Args:
        invitation: what the string says.
        keys: the actor's pair.
        offer: what the learner's machine gets.
        adopt: keeps the learner's key (public key in Z85, name of its machine); may be called twice
            with the same key.
        lasts_s: of the invitation, on this machine's monotonic clock; no other clock counts.
    """

    def __init__(
        self,
        invitation: Invitation,
        keys: Keys,
        offer: Offer,
        adopt: Callable[[str, str], None],
        lasts_s: float = LASTS_S,
    ) -> None:
        self.invitation = invitation
        self.state = "waiting for the learner's machine"  # words for a person; replaced whole
        self.paired = self.over = False  # over: paired, or the time is up
        self._keys, self._offer, self._adopt = keys, offer, adopt
        self._until_s = time.monotonic() + lasts_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pairing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=TRY_S + PROBE_S)

    def _run(self) -> None:
        try:
            accepted = self._until(Accepted, self._offer)
            if isinstance(accepted, Accepted):
                self._adopt(accepted.learner, accepted.machine)
                self.paired, self.state = True, f"paired with {accepted.machine}"
                self._confirm(Paired(accepted.learner))
            elif not self._stopping.is_set():
                self.state = "the invitation has expired"
        except (RobotRLError, OSError) as error:  # a damaged key, a full disk
            log.error("pairing: %s", error)
            self.state = str(error).partition("\n")[0]
        finally:
            self.over = True

    def _until(self, wanted: type, message: Message) -> Message | None:
        """Ask until the wanted answer comes; None when the time is up."""
        while not self._stopping.is_set() and time.monotonic() < self._until_s:
            reply = self._ask(message)
            if isinstance(reply, wanted):
                return reply
            if isinstance(reply, Refused):
                self._say(reply.reason)
                self._ask(reply)  # the learner's machine may stop waiting
                self._stopping.wait(TRY_S)
            elif reply is None:
                self._say(self._unreachable())
        return None

    def _confirm(self, message: Paired) -> None:
        """Let the learner's machine stop waiting; it does so by itself when this is lost."""
        end_s = time.monotonic() + CONFIRM_S
        while not self._stopping.is_set() and time.monotonic() < end_s:
            if isinstance(self._ask(message), Paired):
                return

    def _ask(self, message: Message) -> Message | None:
        """One connection, one question; None without an answer that can be read."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
            asking.linger = 0
            asking.maxmsgsize = MAX_ANSWER
            asking.reconnect_ivl, asking.reconnect_ivl_max = 100, 1_000  # ms
            asking.curve_serverkey = self.invitation.public
            asking.curve_publickey, asking.curve_secretkey = self._keys.public, self._keys.secret
            asking.connect(f"tcp://{self.invitation.host}:{self.invitation.port}")
            asking.send(encode(message))
            end_s = time.monotonic() + TRY_S
            while not self._stopping.is_set() and time.monotonic() < end_s:
                if asking.poll(100):
                    with suppress(CodecError, LinkError):
                        return decode(asking.recv())[1]
        return None

    def _unreachable(self) -> str:
        """What a plain connection says, in words."""
        host, port = self.invitation.host, self.invitation.port
        try:
            socket.create_connection((host, port), timeout=PROBE_S).close()
        except ConnectionRefusedError:
            return f"nobody listens at {host}:{port} yet: type the command on the learner's machine"
        except TimeoutError:
            return f"{host}:{port} does not answer: is it on, and TCP port {port} open there?"
        except OSError as error:
            return f"{host}:{port} cannot be reached: {error}"
        return f"whoever listens at {host}:{port} does not know this invitation"

    def _say(self, state: str) -> None:
        if state != self.state:
            log.warning("pairing: %s", state)
        self.state = state


def await_robot(
    invitation: Invitation,
    bind: str,
    take: Callable[[Offer], Accepted],
    hint: Callable[[str], None],
    lasts_s: float = LASTS_S,
) -> Offer:
    """The learner's side: listen until the robot's machine has made its offer and kept our key.

    Args:
        bind: address of this machine to listen on.
        take: does what the offer asks for and returns the answer; called once. An error of ours
            that it raises is told to the robot's machine, and raised here when that has read it.
        hint: is told, once, what may be wrong when nobody has come for `HINT_S`.

    Raises:
        LinkError: the address is not of this machine, the port is taken, or nobody has come.
    """
    where = LinkConfig(host=bind, port=invitation.port, key_folder="")  # guarded by `_Door`
    pair = Keys("learner", invitation.public, invitation.secret, {invitation.robot: "actor"})
    with zmq.Context() as context:
        door = guard(context, _Door(invitation.robot))
        try:
            with context.socket(zmq.ROUTER) as router:
                router.maxmsgsize = MAX_OFFER
                router.linger = 1_000  # ms: the last answer leaves
                router.handshake_ivl = 5_000  # ms
                listen(router, where, pair, "link.port=... at the robot, and pair again")
                return _serve(router, invitation, take, hint, lasts_s)
        finally:
            door.stop()


class _Door:
    """Lets one key in."""

    def __init__(self, robot: bytes) -> None:
        self._robot = robot

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether a public key (Z85) may come in; pyzmq asks, in a thread of its own."""
        return hmac.compare_digest(key, self._robot)


def _serve(
    router: zmq.Socket[bytes],
    invitation: Invitation,
    take: Callable[[Offer], Accepted],
    hint: Callable[[str], None],
    lasts_s: float,
) -> Offer:
    began_s = offered_s = time.monotonic()
    hinted = False
    answer: Accepted | Refused | None = None  # to the first offer, and to each that repeats it
    read: Paired | Refused | None = None  # what the robot's machine says when it has read that
    result: Offer | RobotRLError | None = None  # the offer that was taken, or why it was not
    while result is not None or time.monotonic() - began_s < lasts_s:
        if result is None and not hinted and time.monotonic() - began_s > HINT_S:
            hinted = True
            hint(_nobody(invitation))
        if result is not None and time.monotonic() - offered_s > CONFIRM_S:
            break  # the offers have ended, so the answer has arrived
        if not router.poll(100):
            continue
        routing, *frames = router.recv_multipart()
        try:
            sequence, message = decode(frames[0] if len(frames) == 1 else b"")
        except CodecError as error:
            log.warning("dropped a malformed message of the robot's machine: %s", error)
            continue
        except LinkError as error:
            _reply(router, routing, Refused("protocol", str(error)), 0)
            raise
        if isinstance(message, Offer):
            offered_s = time.monotonic()
            if answer is None:
                try:
                    answer, result = take(message), message
                    read = Paired(answer.learner)
                except RobotRLError as error:
                    result, answer = error, Refused("pairing", str(error))
                    read = answer
            _reply(router, routing, answer, sequence)
        elif message == read:
            _reply(router, routing, message, sequence)
            break
    if isinstance(result, RobotRLError):
        raise result
    if result is not None:
        return result
    raise LinkError(
        "no robot has come",
        expected=f"the robot's machine, within {lasts_s / 60:.3g} minutes",
        got="no connection that knows this pairing string",
        fix=_nobody(invitation),
    )


def _reply(router: zmq.Socket[bytes], routing: bytes, message: Message, sequence: int) -> None:
    with suppress(zmq.Again):  # it has gone, and will ask again
        router.send_multipart([routing, encode(message, sequence)], zmq.NOBLOCK)


def _nobody(invitation: Invitation) -> str:
    port = invitation.port
    return (
        f"is TCP port {port} open here (e.g. sudo ufw allow {port}/tcp), and is {invitation.host}"
        " this machine as the robot reaches it? A string works once and for"
        f" {LASTS_S / 60:.0f} minutes: `robot-rl pair RUN` at the robot prints a new one"
    )
