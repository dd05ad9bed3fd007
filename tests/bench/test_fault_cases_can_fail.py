"""Cases of the fault table that need no graph, on systems that are broken on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.bench.faults import adversary, running, table
from robot_rl.bench.faults.case import MET, NOT_MET, Context, judge
from robot_rl.bench.faults.worlds import Worlds
from robot_rl.console.access import Access
from robot_rl.learn import checkpoint
from robot_rl.learn.learner import Learner
from robot_rl.learn.room import Room
from robot_rl.link import answers, frames
from robot_rl.link.answers import Peer
from robot_rl.link.server import LinkServer
from robot_rl.operate.handset import Handset
from robot_rl.safety import gate as rules
from robot_rl.store.store import Store
from robot_rl.types import Outcome

Break = Callable[[pytest.MonkeyPatch], object]


def believes_at_once(patch: pytest.MonkeyPatch) -> None:
    feed = Handset.feed
    patch.setattr(
        Handset, "feed", lambda self, *given: dataclasses.replace(feed(self, *given), driving=True)
    )


def clips_nothing(patch: pytest.MonkeyPatch) -> None:
    def judged(limits: Any, gate: Any, command: Any, state: Any, now_s: float) -> Any:
        gate, verdict = rules_judge(limits, gate, command, state, now_s)
        if verdict.outcome is Outcome.HOLD:
            return gate, verdict
        return gate, dataclasses.replace(verdict, command=command)

    rules_judge = rules.judge
    patch.setattr(adversary, "rules", SimpleNamespace(**{**vars(rules), "judge": judged}))


def without_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frames, "zlib", SimpleNamespace(crc32=lambda *_: 0))


def hashes_nothing(patch: pytest.MonkeyPatch) -> None:
    constant = SimpleNamespace(hexdigest=lambda: "same")
    patch.setattr(checkpoint, "hashlib", SimpleNamespace(sha256=lambda _: constant))


def loads_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learner, "load", lambda self: False)


def never_rolls_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learner, "_watch", lambda self, metrics: None)


def knows_no_memory(patch: pytest.MonkeyPatch) -> None:
    def raised(self: Room, error: Exception) -> None:
        raise error

    patch.setattr(Room, "short", raised)


def starts_on_a_full_disk(patch: pytest.MonkeyPatch) -> None:
    append = Store.append

    def appended(self: Store, rows: Any) -> int:
        self.reserve_bytes = 0
        return append(self, rows)

    patch.setattr(Store, "append", appended)


def lets_everybody_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkServer, "callback", lambda self, domain, key: True)


BROKEN: dict[str, list[Break]] = {
    "stuck": [
        believes_at_once,
        lambda patch: patch.setattr("robot_rl.bench.faults.devices.GateBench.arm", lambda _: ""),
        lambda patch: patch.setattr("robot_rl.bench.faults.devices.GateBench.arm", lambda _: "no"),
    ],
    "two_browsers": [lambda patch: patch.setattr(Access, "hears", lambda self, session: True)],
    "beyond_limits": [clips_nothing],
    "flipped": [without_checksum],
    "hostile": [lambda patch: patch.setattr(Peer, "banned", False)],
    "wrong_key": [lets_everybody_in],
    "mismatch": [lambda patch: patch.setattr(answers, "diff", lambda *_: [])],
    "nan_loss": [never_rolls_back],
    "no_memory": [knows_no_memory],
    "learner_restarted": [loads_nothing],
    "checkpoint_damaged": [hashes_nothing],
    "disk_full": [starts_on_a_full_disk],
}


def verdict(name: str, folder: Path) -> str:
    """Of the smallest measurement."""
    (case,) = table.chosen([name])
    with Worlds(folder) as worlds:
        return running.measure(case, folder, 0.0, worlds).verdict


@pytest.mark.parametrize("name", BROKEN)
def test_a_case_is_met_by_the_system_as_it_is(name: str, tmp_path: Path) -> None:
    assert verdict(name, tmp_path) == MET


@pytest.mark.parametrize(
    ("name", "broken"),
    [(name, broken) for name, several in BROKEN.items() for broken in several],
    ids=lambda value: value if isinstance(value, str) else "broken",
)
def test_a_case_is_not_met_by_a_system_that_is_broken(
    name: str, broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert verdict(name, tmp_path) == NOT_MET


def test_no_case_judges_itself(tmp_path: Path) -> None:
    (case,) = table.chosen(["power_cut"])
    with Worlds(tmp_path) as worlds:
        measured = case.measure(Context(case, tmp_path, 0.0, worlds))
    assert judge(case, measured)[0] == MET
    worse = tuple(dataclasses.replace(f, value=f.value + 1e6) for f in measured.figures)
    assert judge(case, dataclasses.replace(measured, figures=worse))[0] == NOT_MET
