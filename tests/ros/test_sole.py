"""One gate in a ROS domain and namespace: a second graph is refused before it starts anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import SetupError
from robot_rl.ros import sole
from robot_rl.ros.graph import Graph, NodeSpec
from robot_rl.ros.supervise import Supervisor

HOLD = """
import sys, time
from robot_rl.ros.sole import sole_gate
with sole_gate({domain}, "{namespace}"):
    print("mine", flush=True)
    time.sleep(60)
"""
DOMAIN = 102 + os.getpid() % 130  # above those of the tests' worlds; another test run has another


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole, "ENDS_S", 0.2)


@contextmanager
def gate(folder: Path, namespace: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that has the place, with the parameters of a gate of this run."""
    code = HOLD.format(domain=DOMAIN, namespace=namespace)
    words = [sys.executable, "-c", code, "--params-file", str(folder / "ros" / "gate.yaml")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "mine\n"
        try:
            yield process
        finally:
            process.kill()


def graph_of(namespace: str = "") -> Graph:
    return (NodeSpec("robot_rl.run.nodes", "gate", namespace, kind="gate"),)


def test_a_second_graph_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with gate(tmp_path / "first") as there:
        with pytest.raises(SetupError, match=f"at work in ROS domain {DOMAIN}") as refused:
            Supervisor(graph_of(), tmp_path / "second", DOMAIN).start()
        assert not (tmp_path / "second").exists()  # nothing was started
        assert str(tmp_path / "first") in refused.value.got
        assert f"process {there.pid}" in refused.value.got
        assert "ros.domain_id=" in refused.value.fix
        with pytest.raises(SetupError), sole.sole_gate(DOMAIN, "/"):
            pass


@pytest.mark.ros
def test_up_is_refused_before_it_makes_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment=reach", f"ros.domain_id={DOMAIN}", f"run_dir={tmp_path / 'second'}"]
    with gate(tmp_path / "first"):
        assert main(["up", *words]) == 2
    assert f"at work in ROS domain {DOMAIN}" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


def test_other_namespaces_and_domains_and_what_has_no_gate_are_free(tmp_path: Path) -> None:
    with gate(tmp_path, "left"):
        sole.need_no_gate(graph_of(), DOMAIN)
        sole.need_no_gate(graph_of("/right/"), DOMAIN)
        sole.need_no_gate(graph_of("left"), DOMAIN - 1)
        sole.need_no_gate((NodeSpec("robot_rl.run.nodes", "view", "left", kind="view"),), DOMAIN)
        with pytest.raises(SetupError, match="namespace left"):
            sole.need_no_gate(graph_of("/left"), DOMAIN)


def test_the_domain_is_that_of_the_shell_where_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gate(tmp_path):
        monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
        with pytest.raises(SetupError):
            sole.need_no_gate(graph_of(), None)
        monkeypatch.delenv("ROS_DOMAIN_ID")
        sole.need_no_gate(graph_of(), None)


def test_a_gate_that_is_killed_leaves_its_place_at_once(tmp_path: Path) -> None:
    with gate(tmp_path) as there:
        there.send_signal(signal.SIGKILL)
        there.wait()
        with sole.sole_gate(DOMAIN, ""):
            pass


def test_a_gate_that_is_about_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sole, "ENDS_S", 10.0)
    with gate(tmp_path) as there:
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {there.pid}"])
        sole.need_no_gate(graph_of(), DOMAIN)
