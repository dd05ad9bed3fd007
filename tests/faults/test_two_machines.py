"""A robot's and a learner's machine with a bad network between them: nothing lost, ticks unharmed.

The robot's side is `tests.support.robot_program` (the real loop, store, link, pairing and policy on
a kinematic arm), the learner's side is `robot-rl learner --pair` as a person types it. The network
is `robot_rl.bench.faults.network`: `tc netem` needs a kernel module that is rarely there, so delay
and the stalls of retransmissions are made by a proxy, which stands in a network namespace of its
own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import Row, Step
from tests.support.machines import Machines, python, two_machines

pytestmark = pytest.mark.alone
PORT = 5597
RUN = (
    *("experiment=reach", "runtime=ros", "link=remote", f"link.port={PORT}"),
    *("task.images=[wrist,front]", "task.image_size=64"),  # as the shipped experiments with cameras
    *("learner.min_steps=10", "learner.utd=1", "link.reply_timeout_s=2", "link.backoff_max_s=1"),
)
ROBOT_RL = [sys.executable, "-m", "robot_rl.cli.main"]


def every(store: Store) -> Iterator[Row]:
    """All rows, in commit order."""
    rows, cursor = store.rows_since(0, 1000)
    while rows:
        yield from rows
        rows, cursor = store.rows_since(cursor, 1000)


class Trial:
    """One run from pairing to the comparison of both stores."""

    def __init__(self, machines: Machines, folder: Path) -> None:
        self.machines, self.folder = machines, folder
        self.robot_run = folder / "robot" / "run-1"
        self.processes: list[subprocess.Popen[str]] = []
        self.wire = self.start(
            "wire",
            python(
                "robot_rl.bench.faults.network",
                f"{machines.network}:{PORT}",
                f"{machines.learner}:{PORT}",
            ),
        )
        words = [*RUN, f"link.host={machines.network}"]
        self.robot = self.start(
            "robot", python("tests.support.robot_program", self.robot_run, *words)
        )
        self.text = self.line(self.robot).removeprefix("pair ").strip()
        self.learner = self.start(
            "learner", [*ROBOT_RL, "learner", "--pair", self.text, "--bind", machines.learner]
        )

    def start(self, where: str, words: Sequence[str]) -> subprocess.Popen[str]:
        with (self.folder / f"{where}.err").open("ab") as errors:
            process = self.machines.start(where, words, self.folder / where, errors)
        self.processes.append(process)
        return process

    def line(self, process: subprocess.Popen[str]) -> str:
        """The next line that a process says."""
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, self.errors()
        return line

    def tell(self, process: subprocess.Popen[str], words: str) -> None:
        """A line on a process's standard input."""
        assert process.stdin is not None
        process.stdin.write(words + "\n")
        process.stdin.flush()

    def network(self, words: str) -> tuple[int, int]:
        """Change the network; returns segments so far, and lost ones."""
        if words in ("down", "up") and self.machines.unplug(down=words == "down"):
            words = "up"  # only asks for the counts
        self.tell(self.wire, words)
        segments, lost = self.line(self.wire).split()
        return int(segments), int(lost)

    def phase(self, name: str, seconds: float) -> None:
        """Practise for a while under a name."""
        self.tell(self.robot, f"phase {name}")
        time.sleep(seconds)

    def status(self) -> dict[str, Any]:
        """The state of the link as the robot's side shows it."""
        path = self.robot_run / "link.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def until_learning(self) -> None:
        """The learner makes updates, and the robot has them."""
        end_s = time.monotonic() + 60.0
        while self.status().get("learner", {}).get("published_updates", 0) < 1:
            assert time.monotonic() < end_s, (self.status(), self.errors())
            time.sleep(0.05)

    def end(self) -> dict[str, Any]:
        """End the robot, which waits for the last acknowledgement; then the learner."""
        self.tell(self.robot, "end")
        report = json.loads(self.line(self.robot))
        self.learner.terminate()
        assert self.learner.wait(30.0) == 0, self.errors()
        return report

    def errors(self) -> str:
        """What the processes have logged."""
        return "\n".join(p.read_text()[-2000:] for p in sorted(self.folder.glob("*.err")))

    def compare(self, report: dict[str, Any]) -> None:
        """Every row of the robot is at the learner, once, and nothing else is."""
        assert report["drained"] and report["refused"] is None, report
        (found,) = (self.folder / "learner" / "runs").rglob("learner.sqlite")
        with Store(self.robot_run / "actor.sqlite") as ours, Store(found) as theirs:
            count = steps = 0
            for sent, got in zip(every(ours), every(theirs), strict=True):
                assert flatten(sent) == flatten(got)
                count, steps = count + 1, steps + isinstance(sent, Step)
        assert count == report["rows"] > 50
        assert report["learner"]["env_steps"] <= steps  # the last figures may be older

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def run(folder: Path, phases: Sequence[tuple[str, float, Sequence[str]]]) -> dict[str, Any]:
    """Pair, practise through the phases (name, seconds, changes of the network), compare."""
    with two_machines() as machines:
        trial = Trial(machines, folder)
        try:
            trial.until_learning()
            counts = {}
            for name, seconds, changes in phases:
                before = (0, 0)
                for words in changes:
                    before = trial.network(words)
                trial.phase(name, seconds)
                after = trial.network(changes[-1])
                counts[name] = (after[0] - before[0], after[1] - before[1])
            report = trial.end()
            trial.compare(report)
        finally:
            trial.close()
    for name, (segments, lost) in counts.items():
        report["phases"][name] |= {"segments": segments, "lost": lost}
    return report | {"machines": machines.kind}


def table(report: dict[str, Any]) -> str:
    """For people, and for docs/results.md."""
    keys = list(next(iter(report["phases"].values())))
    lines = [f"{report['machines']}, {report['rows']} rows, all of them once on the other machine"]
    lines += ["| phase | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for name, figures in report["phases"].items():
        cells = (f"{v:.1f}" if isinstance(v, float) else str(v) for v in figures.values())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@pytest.mark.slow  # in make test, the fault table has such a link (cases 11 and 12)
def test_a_delayed_lossy_link_with_an_outage_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        [
            ("none", 2.0, ["delay 0"]),
            ("100ms-1%", 3.0, ["delay 0.1", "loss 0.01"]),
            ("outage", 3.0, ["down"]),
            ("after", 3.0, ["loss 0", "delay 0", "up"]),
        ],
    )
    phases = report["phases"]
    assert phases["outage"]["most_rows_waiting"] > 25  # a step and a frame in each tick
    assert phases["100ms-1%"]["round_trip_ms"] > 200.0
    assert phases["after"]["weights"] > 0
    for figures in phases.values():  # ten ticks a second, whatever the network does
        assert figures["period_ms_p50"] < 102.0 and figures["period_ms_max"] < 150.0, table(report)


@pytest.mark.slow
def test_0_20_and_100_ms_with_1_percent_loss_and_a_minute_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(
        tmp_path,
        [
            ("0ms", 60.0, ["loss 0", "delay 0"]),
            ("20ms", 60.0, ["delay 0.02"]),
            ("100ms", 60.0, ["delay 0.1"]),
            ("0ms-1%", 60.0, ["delay 0", "loss 0.01"]),
            ("20ms-1%", 60.0, ["delay 0.02"]),
            ("100ms-1%", 60.0, ["delay 0.1"]),
            ("outage", 60.0, ["loss 0", "delay 0", "down"]),
            ("after", 30.0, ["up"]),
        ],
    )
    with capsys.disabled():
        print("\n" + table(report))  # noqa: T201 - the figures of docs/results.md
    phases = report["phases"]
    bound_ms = phases["0ms"]["period_ms_p99"] + 5.0
    for name, figures in phases.items():
        assert figures["period_ms_p99"] <= bound_ms, (name, table(report))
        assert figures["weights"] > 0 or name == "outage", (name, table(report))
    assert phases["outage"]["most_rows_waiting"] > 1000
