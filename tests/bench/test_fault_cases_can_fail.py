"""Cases of the fault table that need no graph, on systems that are broken on purpose."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.bench.faults import adversary, pair, running, storage, table
from robot_rl.bench.faults.case import MET, NOT_MET, Context, Result, judge
from robot_rl.bench.faults.network import Network
from robot_rl.bench.faults.power import wal_of
from robot_rl.bench.faults.worlds import Worlds
from robot_rl.console.access import Access
from robot_rl.learn import checkpoint
from robot_rl.learn.learner import Learner
from robot_rl.learn.room import Room
from robot_rl.link import answers, frames
from robot_rl.link.answers import Peer
from robot_rl.link.server import LinkServer
from robot_rl.operate.handset import Handset
from robot_rl.reward.vlm import worker
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.worker import WorkerConfig
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Engagement
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
    init = LinkServer.__init__

    def knows_all(self: LinkServer, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self._names = defaultdict(lambda: "actor", self._names)

    patch.setattr(LinkServer, "__init__", knows_all)
    patch.setattr(LinkServer, "callback", lambda self, domain, key: True)


def takes_any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pair, "CONFIG", dataclasses.replace(pair.CONFIG, max_message_bytes=1 << 30))


def forgives(check: str) -> Break:
    """A gate that refuses nothing for its age, or for its number."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        refusal = rules._refusal

        def blind(limits: Any, gate: Any, command: Any, want: Any, now_s: float) -> str:
            if check == "age":
                command = dataclasses.replace(command, stamp_s=now_s)
            else:
                gate = gate._replace(sequence=-1)
            return refusal(limits, gate, command, want, now_s)

        patch.setattr(rules, "_refusal", blind)

    return broken


def feels_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_in_hard_contact", lambda limits, reading: False)


def knows_no_margin(patch: pytest.MonkeyPatch) -> None:
    look = rules._look

    def far_from_it(*given: Any) -> Any:
        gate, reading = look(*given)
        return gate, reading and reading._replace(ahead_rad=-9.0)

    patch.setattr(rules, "_look", far_from_it)


def needs_no_device(patch: pytest.MonkeyPatch) -> None:
    unsafe = rules._unsafe

    def driven(limits: Any, gate: Any, *more: Any) -> Any:
        return unsafe(limits, gate._replace(engagement=Engagement.DRIVING), *more)

    patch.setattr(rules, "_unsafe", driven)


def holds_elsewhere(patch: pytest.MonkeyPatch) -> None:
    held = rules._held

    def turned(*given: Any) -> Any:
        verdict = held(*given)
        command = verdict.command
        there = dataclasses.replace(
            command.tcp_target_in_base, quaternion_xyzw=np.array((0.0, 1.0, 0.0, 0.0))
        )
        command = dataclasses.replace(command, tcp_target_in_base=there)
        return dataclasses.replace(verdict, command=command)

    patch.setattr(rules, "_held", turned)


def sends_row_by_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pair, "CONFIG", dataclasses.replace(pair.CONFIG, batch_rows=1))


def injects_nothing(patch: pytest.MonkeyPatch) -> None:
    class Good(Network):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, 0.0 if name in ("delay_s", "loss") else value)

    patch.setattr(pair, "Network", Good)


def drops_what_waits(patch: pytest.MonkeyPatch) -> None:
    append = Store.append

    def bounded(self: Store, rows: Any) -> int:
        full = self.path.name == "actor.sqlite" and self.pending_count() >= 30
        return 0 if full else append(self, rows)

    patch.setattr(Store, "append", bounded)


def stores_now_and_then(patch: pytest.MonkeyPatch) -> None:
    append, calls = Store.append, itertools.count()
    patch.setattr(
        Store, "append", lambda self, rows: append(self, rows) if next(calls) % 2 else len(rows)
    )


def forgets_its_log(patch: pytest.MonkeyPatch) -> None:
    def opened(path: Path, **named: Any) -> Store:
        if "cut" in path.parent.name:
            wal_of(path).unlink(missing_ok=True)
        return Store(path, **named)

    patch.setattr(storage, "Store", opened)


def answers_anyway(patch: pytest.MonkeyPatch) -> None:
    ask = VlmClient.ask

    def guessed(self: VlmClient, questions: Any) -> Any:
        answers = ask(self, questions)
        return [dataclasses.replace(a, value=a.value or 0.0, problem="") for a in answers]

    patch.setattr(VlmClient, "ask", guessed)


BROKEN: dict[str, list[Break]] = {
    "stuck": [
        believes_at_once,
        lambda patch: patch.setattr("robot_rl.bench.faults.devices.GateBench.arm", lambda _: ""),
        lambda patch: patch.setattr("robot_rl.bench.faults.devices.GateBench.arm", lambda _: "no"),
    ],
    "two_browsers": [lambda patch: patch.setattr(Access, "hears", lambda self, session: True)],
    "beyond_limits": [
        *(clips_nothing, forgives("age"), forgives("sequence"), feels_nothing),
        *(knows_no_margin, needs_no_device, holds_elsewhere),
    ],
    "bad_network": [sends_row_by_row, injects_nothing],
    "partition": [drops_what_waits],
    "reordered": [stores_now_and_then],
    "flipped": [without_checksum],
    "hostile": [lambda patch: patch.setattr(Peer, "banned", False), takes_any_size],
    "wrong_key": [lets_everybody_in],
    "mismatch": [lambda patch: patch.setattr(answers, "diff", lambda *_: [])],
    "nan_loss": [never_rolls_back],
    "no_memory": [knows_no_memory],
    "learner_restarted": [loads_nothing],
    "checkpoint_damaged": [hashes_nothing],
    "disk_full": [starts_on_a_full_disk],
    "power_cut": [forgets_its_log],
    "service_fails": [
        answers_anyway,
        lambda patch: patch.setattr(worker, "MAX_FAILED", 0),  # it asks once, and never again
        lambda patch: patch.setattr(
            worker, "WorkerConfig", partial(WorkerConfig, success_frames=0)
        ),
    ],
}


LONG = ("bad_network", "power_cut", "partition")  # several seconds each


def every_break() -> Iterator[Any]:
    """(case, what breaks its promise); those that take long are slow, but for two of the gate's."""
    for name, several in BROKEN.items():
        for i, broken in enumerate(several):
            slow = name in LONG or (name == "beyond_limits" and i > 1)
            yield pytest.param(name, broken, marks=pytest.mark.slow if slow else ())


def measured(name: str, folder: Path) -> Result:
    """The smallest measurement."""
    (case,) = table.chosen([name])
    with Worlds(folder) as worlds:
        return running.measure(case, folder, 0.0, worlds)


# not of bad_network, which a busy machine fails: the table itself tries such cases again
@pytest.mark.parametrize("name", sorted({*BROKEN} - {"bad_network"}))
def test_a_case_is_met_by_the_system_as_it_is(name: str, tmp_path: Path) -> None:
    result = measured(name, tmp_path)
    assert result.verdict == MET, result.reason


@pytest.mark.parametrize(
    ("name", "broken"),
    every_break(),
    ids=lambda value: value if isinstance(value, str) else "broken",
)
def test_a_case_is_not_met_by_a_system_that_is_broken(
    name: str, broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    result = measured(name, tmp_path)
    assert result.verdict == NOT_MET
    limits = [str(limit) for limit in result.case.limits]
    assert any(limit in result.reason for limit in limits), result.reason  # and no slip of ours


def test_no_case_judges_itself(tmp_path: Path) -> None:
    (case,) = table.chosen(["power_cut"])
    with Worlds(tmp_path) as worlds:
        measured = case.measure(Context(case, tmp_path, 0.0, worlds))
    assert judge(case, measured)[0] == MET
    worse = tuple(dataclasses.replace(f, value=f.value + 1e6) for f in measured.figures)
    assert judge(case, dataclasses.replace(measured, figures=worse))[0] == NOT_MET
