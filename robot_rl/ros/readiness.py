"""The readiness list of a running graph: every item that must be well before the arm may move.

Pure functions and values, no rclpy: the arm node fills the list and publishes it, the page shows
it. A person may accept an item by its name; whatever would leave the arm without somebody who stops
it is never accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from robot_rl.errors import did_you_mean
from robot_rl.ros.preflight import Finding

STATUSES = ("ok", "warn", "fail", "accepted")
ARM = "arm"  # what a person asked the arm node for: home, recover, tare
STATE = "state"
IK = "ik"
NEVER: Mapping[str, str] = {
    "stop": "nobody could stop the arm",
    "controllers": "the controllers are how the arm is moved and stopped",
    "controllers listed": "nobody could tell whether the arm is stopped",
    "target_pose": "somebody else than the gate would move the arm",
    IK: "it is how the arm is moved",
    STATE: "the gate moves no arm that it does not see",
    ARM: "it ends by itself",
}
"""Name of an item -> why nobody may accept it."""
DRIVERS_WORD = (
    "it is the driver's or an enabling device's own word; the profile says it: driver.ready"
)


@dataclass(frozen=True, slots=True)
class Item:
    """One line. status: ok | warn | fail | accepted; never: why it cannot be accepted, "" = it can.

    warn: worth a look, does not stop anything; accepted: it fails, and a person has accepted that.
    """

    name: str
    status: str
    text: str
    fix: str = ""
    never: str = ""


class Readiness:
    """The list and what is accepted of it.

    Args:
        at_start: what the preflight found before the graph was started; an item of the same name
            that is looked at while the graph runs takes its place.
        words: names of the readiness topics, which nobody may accept.
    """

    def __init__(self, at_start: Sequence[Finding] = (), words: Iterable[str] = ()) -> None:
        self._never = {**NEVER, **dict.fromkeys(words, DRIVERS_WORD)}
        self._at_start = [_told_before(f) for f in at_start if f.status != "ok"]
        self._known = {f.name for f in at_start}
        self.accepted: tuple[str, ...] = ()
        self.items: tuple[Item, ...] = ()

    def update(self, found: Sequence[Finding]) -> None:
        """Take what is found now."""
        names = {finding.name for finding in found}
        old = [f for f in self._at_start if f.name not in names]
        self.items = tuple(self._item(f) for f in (*found, *old))

    def _item(self, found: Finding) -> Item:
        never = self._never.get(found.name, "")
        passed = found.status == "fail" and found.name in self.accepted and not never
        status = "accepted" if passed else found.status
        return Item(found.name, status, found.text, found.fix, never)

    @property
    def problem(self) -> str:
        """Text of the first item that keeps the arm from moving; "" when none does."""
        return next((item.text for item in self.items if item.status == "fail"), "")

    def refusal(self, names: Iterable[str]) -> str:
        """Why these names cannot be what is accepted; "" when they can."""
        known = self._known.union((item.name for item in self.items), self.accepted)
        for name in filter(None, names):
            if name in self._never:
                return f"'{name}' cannot be accepted: {self._never[name]}"
            if name not in known:
                return f"no item '{name}': {did_you_mean(name, known)}"
        return ""

    def accept(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Accept these names and no others; returns the names that are new, and those that end."""
        before = self.accepted
        self.accepted = tuple(name for name in dict.fromkeys(names) if name)
        self.items = tuple(
            self._item(Finding(i.name, "fail", i.text, i.fix))
            if i.status in ("fail", "accepted")
            else i
            for i in self.items
        )
        new = [name for name in self.accepted if name not in before]
        return new, [name for name in before if name not in self.accepted]


def _told_before(found: Finding) -> Finding:
    fix = f"{found.fix}; found before the start: start again to have it looked at again"
    return Finding(found.name, found.status, found.text, fix)
