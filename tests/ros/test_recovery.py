"""Recovery without a person at hand (`unattended`), and what the supervisor promises."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_rl.errors import SetupError
from robot_rl.ros import supervise, topics
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.graph import NODES_MODULE, NodeSpec, SimGraphConfig, sim_graph
from robot_rl.ros.supervise import BOOTSTRAP_GUARD, Supervisor, environment
from tests.support.probe import Probe
from tests.support.ros import World, new_domain, wait_for, write_run

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def unattended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A graph whose scripted person acknowledges and resumes."""
    run_dir = write_run(tmp_path_factory.mktemp("unattended"), operator="scripted")
    config = SimGraphConfig(real_time_factor=1.0, with_actor=False)
    world = World(sim_graph(config, str(run_dir)), run_dir)
    try:
        world.probe.wait_state()
        yield world
    finally:
        world.close()


@pytest.mark.alone
def test_kill_9_of_the_sim_is_survived_and_time_never_goes_back(
    unattended: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a quiet machine restarts the sim in under the second that the gate calls a jump of the clock
    monkeypatch.setattr(supervise, "BACKOFF_MIN_S", 1.5)
    probe, supervisor = unattended.probe, unattended.supervisor
    first = probe.heard["/clock"][0][1].clock
    # long enough that a clock starting from zero again would be seen to go back
    wait_for(lambda: probe.now_s() - first.sec > 4.0, 10.0, "four seconds of run time")
    assert probe.arm("before").granted
    pids = supervisor.pids()
    stamp_s = probe.now_s()
    os.kill(pids["sim"], signal.SIGKILL)
    wait_for(lambda: supervisor.restarts()["sim"] == 1, 15.0, "the sim is started again")
    wait_for(lambda: probe.now_s() > stamp_s + 1.0, 10.0, "run time goes on")
    # from its log: of a state that changes fast, a busy listener is told the newest only
    log = unattended.run_dir / "logs" / "gate.log"
    # which it sees first, the new clock, a state that is far ahead of the old one, or that the dead
    # sim's publishers are still counted beside the new one's, is chance
    seen = ("clock: jumped", "state: ", "publishers: 2 on")
    stops = tuple(f"protective stop: {reason}" for reason in seen)
    wait_for(
        lambda: any(stop in log.read_text() for stop in stops),
        5.0,
        "the gate notices that the robot was restarted",
    )
    probe.wait_mode("hold", 20.0)  # acknowledged by the scripted person
    clocks = [m.clock.sec + m.clock.nanosec * 1e-9 for _, m in probe.heard["/clock"]]
    assert all(a <= b for a, b in itertools.pairwise(clocks))
    assert probe.arm("after", timeout_s=10.0).granted
    others = {k: v for k, v in pids.items() if k != "sim"}
    assert others == {k: v for k, v in supervisor.pids().items() if k != "sim"}


@pytest.mark.alone
def test_a_stopped_controller_is_resumed_a_persons_stop_is_theirs(unattended: World) -> None:
    probe = unattended.probe
    assert probe.call(topics.GATE_STOP).success
    assert probe.call(topics.CONTROLLER_STOP).success
    wait_for(probe.stopped, 15.0, "the controller stops")
    wait_for(lambda: not probe.stopped(), 15.0, "the controller is resumed")
    time.sleep(1.0)  # the scripted person would have acknowledged by now
    probe.wait_mode("protective_stop")
    assert probe.call(topics.GATE_ACKNOWLEDGE).success
    probe.wait_mode("hold")


@pytest.mark.alone
def test_a_persons_stop_during_another_stop_is_not_acknowledged_by_the_script(
    unattended: World,
) -> None:
    probe = unattended.probe
    assert probe.arm("victim").granted
    stranger = Probe(unattended.domain_id)
    rival = publisher(stranger.node, topics.TARGET_POSE)  # a cause that stays while we like
    try:
        wait_for(
            lambda: "publishers" in (probe.report().reason if probe.report() else ""),
            10.0,
            "stopped because of a rival",
        )
        assert probe.call(topics.GATE_STOP).success
        assert probe.report().reason.startswith("person") or probe.wait_mode("protective_stop")
    finally:
        stranger.node.destroy_publisher(rival)
        stranger.close()
    time.sleep(1.5)  # the scripted person would have acknowledged by now
    assert probe.wait_mode("protective_stop").reason.startswith("person")
    assert not probe.call(topics.GATE_CLEAR).success
    assert probe.call(topics.GATE_ACKNOWLEDGE).success
    probe.wait_mode("hold")


def test_a_slow_node_ends_by_itself_while_the_next_is_asked(tmp_path: Path) -> None:
    """Killed at its own limit, it would lose what it was about to write."""
    slow = tmp_path / "slow_node.py"
    slow.write_text(
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (time.sleep(2.5), sys.exit(0)))\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    graph = tuple(NodeSpec("slow_node", f"slow_{i}", env=env, stop_s=0.1) for i in range(4))
    supervisor = Supervisor(graph, tmp_path, new_domain())
    supervisor.start()
    logs = [tmp_path / "logs" / f"slow_{i}.log" for i in range(4)]
    wait_for(lambda: all("up" in log.read_text() for log in logs), 10.0, "all are up")
    began_s = time.monotonic()
    codes = supervisor.stop()
    assert set(codes.values()) == {0} and len(codes) == 4
    assert time.monotonic() - began_s < 4 * 2.5  # all at once, not one after the other


def test_a_deaf_node_is_killed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "GRACE_S", 0.5)
    deaf = tmp_path / "deaf_node.py"
    deaf.write_text("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)\n")
    env = {"PYTHONPATH": str(tmp_path)}
    graph = tuple(NodeSpec("deaf_node", f"deaf_{i}", env=env) for i in range(5))
    supervisor = Supervisor(graph, tmp_path, new_domain())
    supervisor.start()
    time.sleep(0.5)
    began_s = time.monotonic()
    codes = supervisor.stop()
    assert time.monotonic() - began_s < 20.0  # they sleep for a minute
    assert set(codes.values()) == {-signal.SIGKILL} and not supervisor.pids()


def test_a_crashing_node_is_restarted_later_and_later_a_misconfigured_one_never(
    tmp_path: Path,
) -> None:
    (tmp_path / "crash_node.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "wrong_node.py").write_text("raise SystemExit(2)\n")
    (tmp_path / "done_node.py").write_text("raise SystemExit(0)\n")
    env = {"PYTHONPATH": str(tmp_path)}
    graph = (
        NodeSpec("crash_node", "crash", env=env),
        NodeSpec("wrong_node", "wrong", env=env),
        NodeSpec("done_node", "done", finishes=True, env=env),
    )
    with Supervisor(graph, tmp_path, new_domain()) as supervisor:
        exits = []
        deadline_s = time.monotonic() + 2.0
        while time.monotonic() < deadline_s:
            exits += supervisor.poll()
            time.sleep(0.02)
    delays_s = [e.restart_in_s for e in exits if e.name == "crash"]
    assert len(delays_s) >= 2 and delays_s == sorted(delays_s) and delays_s[0] < delays_s[1]
    others = {(e.name, e.code, e.restart_in_s, e.fatal) for e in exits if e.name != "crash"}
    assert others == {("wrong", 2, None, True), ("done", 0, None, False)}


def test_nodes_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run")
    script = f"""
        import sys, time
        from pathlib import Path
        from robot_rl.ros.graph import NodeSpec
        from robot_rl.ros.supervise import Supervisor
        graph = (NodeSpec({NODES_MODULE!r}, "watchdog", kind="watchdog"),)
        s = Supervisor(graph, Path({str(run_dir)!r}), {new_domain()})
        s.start()
        sys.stdout.write(str(s.pids()["watchdog"]) + "\\n"); sys.stdout.flush()
        time.sleep(60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    log_file = run_dir / "logs" / "watchdog.log"
    wait_for(lambda: "up, pid" in log_file.read_text(), 10.0, "the node runs")
    parent.kill()
    parent.wait()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _zombie(pid), 15.0, "the node has ended")


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_another_interpreter_does_not_inherit_the_wheels_bootstrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(BOOTSTRAP_GUARD, "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/some/where/lib")
    foreign = environment(NodeSpec("x", "x", python="/usr/bin/python3"), 5)
    assert BOOTSTRAP_GUARD not in foreign and "LD_LIBRARY_PATH" not in foreign
    own = environment(NodeSpec("x", "x"), 5)
    assert own[BOOTSTRAP_GUARD] == "1" and own["ROS_DOMAIN_ID"] == "5"


@pytest.mark.parametrize("domain_id", [-1, 233])
def test_an_impossible_domain_is_refused(tmp_path: Path, domain_id: int) -> None:
    with pytest.raises(SetupError, match="0 to 232"):
        Supervisor((), tmp_path, domain_id)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "silence:=0.3"], "did you mean 'silence_s'"),
        (["-p", "silence_s:=9.0"], r"[0.05, 5.0]"),
        (["-p", "silence_s:=true"], "bad value"),
    ],
)
def test_a_wrong_parameter_ends_the_node_with_one_clear_error(
    words: list[str], message: str
) -> None:
    env = os.environ | {"ROS_DOMAIN_ID": str(new_domain())}
    command = [sys.executable, "-m", NODES_MODULE, "watchdog", "--ros-args", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
