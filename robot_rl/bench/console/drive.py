"""How soon the gate hears a person at the console, and how soon it holds when the console dies.

    key(500)["key/to_gate_ms_p50"]

The graph is real and runs on the same machine (`graph`). `key` presses keys in a real browser.
`hand` sends the same messages to the control socket itself: the difference is the browser, which
draws on the same cores. `kill` uses the socket, too, 50 times a second as the page does, because a
browser for each trial would take seconds; what is killed is the real server, with kill -9, and
another one stands ready for the next trial.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from robot_rl.bench.console.browser import (
    Server,
    browser,
    clock_of,
    open_page,
    quantiles,
    take_seat,
    until,
)
from robot_rl.bench.console.graph import Graph, Moment, graph
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError

log = logging.getLogger(__name__)

READY_S = 240.0  # eight processes start at once, two of them with torch; a reset takes seconds
SEND_S = 0.02  # between two messages of a page
HOLD_MS = 120.0  # what a killed console may take
GIVE_UP_S = 2.0  # a gate that has not held by then does not hold
HEARD_S = 0.35  # after a press: who does not drive by then was not heard
ENDED_S = 1.0  # after the end of an episode there is nothing to take over: a reset takes longer
AGAIN_S, REST_S = 2.0, 0.3  # a press that is not heard is tried again after a rest


def key(presses: int) -> dict[str, float]:
    """Press the drive key in the page that often while the policy drives.

    Figures, each from the key event's time stamp: key/to_operator_ms until the operator's node has
    sent "a person drives", key/to_inbox_ms until that has reached the gate's process,
    key/to_gate_ms until the gate has taken it into account; takeover/muted_periods until it has
    judged the last command of the policy, in control periods (0: none came any more), and
    takeover/policy_commands how many (one may be on its way); takeover/periods until it has judged
    the first that is not the policy's, which the next tick brings. A press that is not heard counts
    as infinitely late; one around which an episode ended does not count.

    Raises:
        SetupError: no browser, no ROS 2, or a package is missing.
        RobotRLError: a process dies, or the benchmark does not get on.
    """
    dice = random.Random(0)
    with browser() as running, graph() as world, Server(world.run_dir) as server:
        page = open_page(running, server.link)
        take_seat(page)
        clock = clock_of(page)
        page.evaluate("bench.forget()")
        for _ in _counted("key", presses):
            _until_policy(page, world)
            time.sleep(dice.uniform(0.1, 0.2))
            page.keyboard.down("Space")
            time.sleep(dice.uniform(0.22, 0.26))  # two control periods: a command falls into it
            page.keyboard.up("Space")
            time.sleep(0.05)
        keys_s = [clock.seconds(ms) for ms in page.evaluate("bench.keys")]
        moments, period_s = world.moments(), 1.0 / world.control_hz
        ends_s = world.ends_s()
    found = outcomes(moments, keys_s, ends_s, presses)
    periods = [x.hands_s / period_s for x in found]
    return {
        "key/presses": float(len(found)),
        "key/unheard": float(found.count(UNHEARD)),
        "key/clock_bound_ms": clock.bound_s * 1e3,
        **quantiles("key/to_operator_ms", [x.sent_s * 1e3 for x in found], 50, 99),
        **quantiles("key/to_inbox_ms", [x.inbox_s * 1e3 for x in found], 50, 99),
        **quantiles("key/to_gate_ms", [x.gate_s * 1e3 for x in found], 50, 99),
        **quantiles("takeover/muted_periods", [x.muted_s / period_s for x in found], 50, 99),
        **quantiles("takeover/periods", periods, 50, 99),
        "takeover/periods_max": max(periods, default=math.nan),
        "takeover/policy_commands_max": max((x.commands for x in found), default=math.nan),
    }


def hand(presses: int) -> dict[str, float]:
    """The same presses over the control socket, without a browser: what the robot side takes.

    hand/to_gate_ms: from the message of a press until the gate has taken it into account;
    hand/to_operator_ms: until the operator's node has sent it. Presses count as in `key`.

    Raises:
        SetupError, RobotRLError: see `key`.
    """
    dice = random.Random(0)
    with graph() as world, Server(world.run_dir) as server, ScriptedPage(server.link) as driver:
        for _ in _counted("hand", presses):
            _until_policy_again(world, driver)
            time.sleep(dice.uniform(0.1, 0.2))
            driver.held = ["drive"]
            time.sleep(dice.uniform(0.22, 0.26))
            driver.held = []
            time.sleep(0.05)
        found = outcomes(world.moments(), driver.presses_s, world.ends_s(), presses)
    return {
        "hand/presses": float(len(found)),
        "hand/unheard": float(found.count(UNHEARD)),
        **quantiles("hand/to_operator_ms", [x.sent_s * 1e3 for x in found], 50, 99),
        **quantiles("hand/to_gate_ms", [x.gate_s * 1e3 for x in found], 50, 99),
    }


def _counted(what: str, count: int) -> Iterator[int]:
    """Yield 0 .. count - 1, and log ten times on the way how far it is."""
    for i in range(count):
        if i and i % max(count // 10, 1) == 0:
            log.info("%s: %d of %d", what, i, count)
        yield i


def _until_policy_again(world: Graph, driver: ScriptedPage) -> None:
    """Wait until the policy drives; let the robot go on as a person does."""
    look_s = time.monotonic() + AGAIN_S

    def drives() -> bool:
        nonlocal look_s
        if time.monotonic() > look_s:
            look_s = time.monotonic() + AGAIN_S
            driver.go_on()
        return _policy_drives(world)

    until(drives, "the policy drives", READY_S, world.words)


@dataclass(frozen=True, slots=True)
class PressOutcome:
    """What followed a press: seconds after it, and how many of the policy's commands."""

    sent_s: float
    inbox_s: float
    gate_s: float
    muted_s: float
    hands_s: float
    commands: float


UNHEARD = PressOutcome(*[math.inf] * 6)


def outcomes(
    moments: Sequence[Moment], asked_s: Sequence[float], ends_s: Sequence[float], presses: int
) -> list[PressOutcome]:
    """What followed each press but those around which an episode ended; `UNHEARD` = nothing.

    asked_s: when presses were noted, ends_s: when episodes ended by themselves. Those of `presses`
    that nobody has noted are not heard either.
    """
    lost = [UNHEARD] * (presses - len(asked_s))
    counted = (s for s in asked_s if not any(-ENDED_S < end_s - s < HEARD_S for end_s in ends_s))
    return [*(answer(moments, at_s, HEARD_S) or UNHEARD for at_s in counted), *lost]


def answer(moments: Sequence[Moment], at_s: float, within_s: float) -> PressOutcome | None:
    """What followed a press; None when it was not heard, or did not take over."""
    after = [m for m in moments if at_s < m.at_s < at_s + within_s]
    heard = next((m for m in after if m.what == "driving" and m.value), None)
    drivers = [(m.at_s, m.value) for m in after if m.what == "command"]
    policy = next((i for i, (_, who) in enumerate(drivers) if who != "policy"), None)
    if heard is None or policy is None:
        return None
    return PressOutcome(
        sent_s=heard.sent_s - at_s,
        inbox_s=heard.inbox_s - at_s,
        gate_s=heard.at_s - at_s,
        muted_s=drivers[policy - 1][0] - at_s if policy else 0.0,
        hands_s=drivers[policy][0] - at_s,
        commands=policy,
    )


def _policy_drives(world: Graph) -> bool:
    drives = world.newest("mode") == "run" and world.newest("command") == "policy"
    return drives and not world.newest("driving")


def _until_policy(page: Any, world: Graph) -> None:
    """Wait until the policy drives; look and let the robot go on as a person at the page does."""

    def drives() -> bool:
        word, waits = page.evaluate("[robotRL.word, robotRL.robot.gate?.waits]")
        if word == "PROTECTIVE STOP":
            page.keyboard.press("y")
        elif waits:
            page.keyboard.press("r")
        elif word == "POLICY":
            return _policy_drives(world)
        time.sleep(0.05)
        return False

    until(drives, "the policy drives", READY_S, world.words)


# --- kill ---------------------------------------------------------------------------------------


class ScriptedPage:
    """A driver at a console, without a browser.

    Args:
        link: that the server made. drives: claims the seat. speaks: not `silent` from the first.

    held: the words that are sent now; axes: where the sticks are; silent: nothing is sent, over an
    open connection; presses_s: for each press, when "drive" was first sent; trips_ms: how long each
    message and its answer took.

    Raises:
        RobotRLError: the console does not let the driver in.
    """

    def __init__(self, link: str, *, drives: bool = True, speaks: bool = True) -> None:
        from websockets.sync.client import connect
        from websockets.typing import Origin, Subprotocol

        from robot_rl.console.doors import FRAGMENT, SECRET, SUBPROTOCOL

        self.held: list[str] = []
        self.axes = [0.0] * 6
        self.silent = not speaks
        self.presses_s: list[float] = []
        self.trips_ms: list[float] = []
        at = urlsplit(link)
        url = f"{at.scheme}://{at.netloc}"
        self._place = (at.hostname or HOST, at.port or 0)
        self._headers = {"Origin": url}
        entered = self._ask("GET", f"{at.path}?{at.query}")
        self._headers["Cookie"] = (entered.getheader("Set-Cookie") or "").partition(";")[0]
        secret = (entered.getheader("Location") or "").partition(f"#{FRAGMENT}=")[2]
        self._headers[SECRET] = secret
        if drives:
            self.post("lease/claim")
        self._connect = partial(
            connect,
            origin=Origin(url),
            additional_headers={"Cookie": self._headers["Cookie"]},
            subprotocols=[Subprotocol(SUBPROTOCOL + secret)],
            user_agent_header=None,  # as the requests: a session is one browser's
            compression=None,
            proxy=None,
        )
        self._netloc = at.netloc
        self._socket = self.open("control")
        self._going = True
        self._thread = threading.Thread(target=self._speak, daemon=True)
        self._thread.start()

    def claims(self) -> bool:
        """Ask for the seat; whether it was granted."""
        return self._ask("POST", "/api/lease/claim").status == 200

    def open(self, path: str) -> Any:
        """One of the page's sockets: "control", "video/front"."""
        return self._connect(f"ws://{self._netloc}/ws/{path}")

    def post(self, what: str) -> None:
        """What the page's buttons do: "lease/claim", "command/go". Raises `RobotRLError`."""
        got = self._ask("POST", f"/api/{what}")
        if got.status != 200:
            raise RobotRLError(
                f"the console refuses {what}", expected="200", got=f"{got.status} {got.reason}"
            )

    def go_on(self) -> None:
        """Look, and let the robot go on, whatever it waits for."""
        for verb in ("resume", "acknowledge", "go"):
            with suppress(RobotRLError):  # there may be nothing to acknowledge
                self.post(f"command/{verb}")

    def _ask(self, method: str, path: str) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection(*self._place, timeout=5.0)
        try:
            line.request(method, path, headers=self._headers)
            got = line.getresponse()
            got.read()
        except OSError as error:
            raise RobotRLError("the console does not answer", got=str(error)) from error
        finally:
            line.close()
        return got

    def _speak(self) -> None:
        """Send a message and take its answer, 50 times a second, until the connection breaks."""
        from websockets.exceptions import ConnectionClosed

        next_s, before = time.monotonic(), False
        with suppress(ConnectionClosed):  # the server is killed: that is what this is for
            while self._going:
                if self.silent:
                    time.sleep(0.001)
                    continue
                said, began_s = list(self.held), time.monotonic()
                if "drive" in said and not before:
                    self.presses_s.append(began_s)
                before = "drive" in said
                self._socket.send(json.dumps({"axes": self.axes, "held": said}))
                self._socket.recv()
                self.trips_ms.append((time.monotonic() - began_s) * 1e3)
                next_s = max(next_s + SEND_S, time.monotonic())
                time.sleep(max(next_s - time.monotonic(), 0.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._going = False
        self._thread.join()
        with suppress(Exception):
            self._socket.close()


def kill(trials: int) -> dict[str, float]:
    """Kill the console that often while a person drives.

    hold_ms: from kill -9 until the gate's mode has left RUN for good; over_120_ms: trials in which
    that took longer. A trial without a hold counts as `GIVE_UP_S`.

    Raises:
        SetupError, RobotRLError: see `key`.
    """
    times_ms: list[float] = []
    dice = random.Random(0)
    with graph() as world:
        servers = [Server(world.run_dir)]
        try:
            for _ in _counted("kill", trials):
                with ScriptedPage(servers[0].link) as hand:
                    _until_hand(world, hand)
                    servers.append(Server(world.run_dir))
                    assert servers[1].link  # waits until it serves
                    _until_hand(world, hand)
                    time.sleep(dice.uniform(0.1, 0.2))
                    times_ms.append(_kill(world, servers[0]))
                servers.pop(0).close()
        finally:
            for server in servers:
                server.close()
    return {
        "kill/trials": float(trials),
        **quantiles("kill/hold_ms", times_ms, 50, 99),
        "kill/hold_ms_max": max(times_ms, default=math.nan),
        "kill/over_120_ms": float(sum(ms > HOLD_MS for ms in times_ms)),
    }


def _kill(world: Graph, server: Server) -> float:
    """Milliseconds from the kill to the hold; `GIVE_UP_S` when there is none."""
    known, killed_s = len(world.moments()), time.monotonic()
    server.process.kill()
    while time.monotonic() < killed_s + GIVE_UP_S:
        if (held_s := held_at_s(world.moments()[known:], killed_s)) is not None:
            return (held_s - killed_s) * 1e3
        time.sleep(0.01)
    return GIVE_UP_S * 1e3


def held_at_s(moments: Sequence[Moment], after_s: float) -> float | None:
    """When the gate left RUN for good, with the person's silence as its reason; None = not yet."""
    since_s: float | None = None
    for m in moments:
        if m.what != "mode" or m.at_s < after_s:
            continue
        since_s = None if m.value == "run" else since_s or m.at_s
        if since_s is not None and m.reason.startswith("operator_silent"):
            return since_s
    return None


def _until_hand(world: Graph, hand: ScriptedPage) -> None:
    """Rest, let the robot go on, press the drive key, until the gate lets the person drive."""
    rest_s = 0.0  # the rest ends here

    def drives() -> bool:
        nonlocal rest_s
        now_s = time.monotonic()
        if hand.held and world.newest("driving") and world.newest("mode") == "run":
            return world.newest("command") != "policy"
        if now_s > rest_s + AGAIN_S:
            hand.held, rest_s = [], now_s + REST_S
            hand.go_on()
        elif now_s > rest_s:
            hand.held = ["drive"]
        return False

    until(drives, "a person drives", READY_S, world.words)
