"""The whole graph with Isaac Sim's stand-in as its simulator: `sim=isaac`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")
pytest.importorskip("pxr", reason="OpenUSD is not installed: pip install 'robot-rl[usd]'")

from robot_rl.ros import topics
from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.store.store import Store
from tests.support.isaac import use_stand_in
from tests.support.probe import Probe
from tests.support.ros import new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]


def workers_of(run: Path) -> list[int]:
    """Process ids of Isaac Sim's workers, of the simulator of a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            of_parent = Path(f"/proc/{parent}/cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if any(word.endswith(b"worker.py") for word in words) and str(run).encode() in of_parent:
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Path, Probe]]:
    """`robot-rl up sim=isaac`, without an actor: the test drives."""
    use_stand_in(monkeypatch, "experiment=reach")
    run, domain_id = tmp_path / "run", new_domain()
    words = ["experiment=reach", "sim=isaac", "operator=none", f"run_dir={run}"]
    tool = Path(sys.executable).with_name("robot-rl")
    more = ["ros.with_actor=false", f"ros.domain_id={domain_id}"]
    process = subprocess.Popen([str(tool), "up", *words, *more])
    probe = Probe(domain_id)
    try:
        probe.wait_state()
        yield run, probe
    finally:
        probe.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30.0) == 0
        assert workers_of(run) == []


def drive(probe: Probe, lease: str) -> None:
    """Arm, and move the target by 3 cm."""
    wait_for(lambda: probe.arm(lease).granted, 15.0, "the gate arms")
    start_m = probe.tcp().position_m[0]
    for sequence in range(1, 4):
        probe.send(probe.command(lease, sequence, 0.01))
        began_s = probe.now_s()
        wait_for(lambda: probe.now_s() >= began_s + 0.1, 15.0, "run time goes on")  # noqa: B023
    moved = lambda: probe.tcp().position_m[0] - start_m > 0.005  # noqa: E731
    wait_for(moved, 10.0, lambda: f"the arm moves; the gate says {probe.report()}")


def test_the_arm_moves_and_holds_when_isaac_sim_is_killed(up: tuple[Path, Probe]) -> None:
    run, probe = up
    drive(probe, "first")
    (worker,) = workers_of(run)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: probe.report().mode == "hold", 10.0, "the gate holds")
    sent = len(probe.heard[topics.TARGET_POSE.name])
    log = run / "logs" / "sim.log"
    wait_for(lambda: "Isaac Sim is gone" in log.read_text(), 10.0, "the log says why")
    wait_for(lambda: workers_of(run) not in ([], [worker]), 30.0, "Isaac Sim is started again")
    targets = [message for _, message in probe.heard[topics.TARGET_POSE.name][sent:]]
    assert len({m.pose.position.x for m in targets}) <= 1  # nobody drives meanwhile
    before_s = probe.now_s()
    wait_for(lambda: probe.now_s() > before_s, 30.0, "time goes on")
    assert probe.report().mode == "hold"


def test_demonstrations_are_recorded_through_the_whole_graph(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_stand_in(monkeypatch, "experiment=reach")
    words = ["experiment=reach", "runtime=ros", "sim=isaac", "train.demos=2"]
    words += [f"ros.domain_id={new_domain()}", f"run_dir={tmp_path / 'run'}"]
    assert record(Experiment.compose(words), lambda _: None)["successes"] == 2
    with Store(tmp_path / "run" / "actor.sqlite") as store:
        episodes = [e for e in store.episode_summaries() if e.success]
    assert len(episodes) == 2 and all(e.human_steps == e.steps for e in episodes)
