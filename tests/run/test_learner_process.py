"""The learner process: what arrives in a turn, and what a full disk ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.address import HOST
from robot_rl.errors import LinkError
from robot_rl.learn.algos import HilSerlConfig
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.run import learner as process
from robot_rl.run.experiment import Experiment, TrainConfig
from robot_rl.store.store import Store
from robot_rl.system.ports import probe
from robot_rl.system.supervised import EXIT_SETUP
from robot_rl.types import Ending, Label, Row, Step
from tests.support.clock import ManualClock
from tests.support.pairs import until
from tests.support.point_mass import SPEC, FakeStore, PointMass, demonstrate


class Arriving:
    """A link server: one row comes in at the next poll."""

    def __init__(self, store: FakeStore, row: Row) -> None:
        self.store, self.row, self.waited_ms = store, row, -1

    def poll(self, wait_ms: int) -> None:
        self.waited_ms = wait_ms
        self.store.rows.append(self.row)

    def publish(self, weights: object) -> None: ...

    def set_status(self, status: object) -> None: ...

    def told(self, key: str) -> list[object]:
        return [True]


@pytest.mark.parametrize(("kept", "told", "done"), [(1, [], 0), (1, [True], 6), (2, [], 6)])
def test_pretraining_waits_until_all_demonstrations_are_there(
    kept: int, told: list[bool], done: int, tmp_path: Path
) -> None:
    """Over ROS it had spent all its updates on the first one."""

    class Server(Arriving):
        def poll(self, wait_ms: int) -> None: ...

        def told(self, key: str) -> list[object]:
            return [*told]

    config = LearnerConfig(min_steps=1, pretrain_updates=6, checkpoint_updates=0)
    algo = HilSerlConfig(hidden=(16,), batch_size=16)
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        recorded = FakeStore()
        demonstrate(recorded, PointMass(0), kept)
        store.append(recorded.rows)
        learner = Learner(config, algo, SPEC, store, run_dir=tmp_path, seed=0, clock=ManualClock())
        learner.ingest()
        learner.may_pretrain = process._demonstrated(store, TrainConfig(demos=2))
        server: Any = Server(recorded, recorded.rows[0])
        assert sum(process.turn(learner, server) for _ in range(6)) == done
        learner.close()


@pytest.mark.parametrize("purpose", ["train", "demo"])
def test_the_last_thing_to_learn_from_may_go_between_two_turns(
    purpose: str, tmp_path: Path
) -> None:
    """The first practice is stopped, or the only demonstration is excluded."""
    store = FakeStore()
    demonstrate(store, PointMass(0), 1)
    last = next(row for row in reversed(store.rows) if isinstance(row, Step))
    gone: Row = Label(last.id, 0, None, "exclude", 1.0, "person", "ada", 0)
    if purpose == "train":
        store.rows = [replace(x, purpose=purpose) if hasattr(x, "purpose") else x
                      for x in store.rows if x is not last]  # fmt: skip
        gone = replace(last, ending=Ending.ABORTED)
    config = LearnerConfig(min_steps=1, pretrain_updates=6, checkpoint_updates=0)
    algo = HilSerlConfig(hidden=(16,), batch_size=16)
    learner = Learner(config, algo, SPEC, store, run_dir=tmp_path, seed=0, clock=ManualClock())
    learner.ingest()
    server: Any = Arriving(store, gone)
    assert learner.updates_due() > 0
    assert process.turn(learner, server) == 0
    assert server.waited_ms == 0 and not learner.replay.can_sample
    learner.close()


def test_a_port_that_is_taken_and_a_key_that_is_open_are_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("robot_rl_sim", reason="the task of the experiment")
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as orphan:
        words = [f"link.port={orphan.getsockname()[1]}", f"run_dir={tmp_path / 'run'}"]
        run_dir = Experiment.compose(["experiment=reach", "runtime=lockstep", *words]).save()
        assert process.main(run_dir) == EXIT_SETUP
    assert "the port is in use" in caplog.text
    (run_dir / "keys" / "learner.secret").chmod(0o644)
    assert process.main(run_dir) == EXIT_SETUP  # no restart closes it
    assert "readable by others" in caplog.text


def test_a_learner_that_loads_ends_with_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it holds the port for minutes, and the same command again finds it taken."""
    ended = threading.Event()
    monkeypatch.setattr(process, "ORPHAN_S", 0.01)
    monkeypatch.setattr(process.os, "_exit", lambda _code: ended.set())
    with process._no_longer_than(os.getppid()):
        assert not ended.wait(0.1)
    with process._no_longer_than(-1):
        assert ended.wait(10.0)
    ended.clear()
    assert not ended.wait(0.1)  # once it has loaded, it saves before it ends


def test_a_full_disk_ends_no_training_and_hides_no_other_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("robot_rl_sim", reason="the task of the experiment")
    words = ["experiment=reach", "runtime=lockstep", "algo.hidden=[16]"]
    run_dir = Experiment.compose([*words, f"run_dir={tmp_path / 'run'}"]).save()
    turns: list[Learner] = []
    closed: list[bool] = []

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def turn(learner: Learner, server: object, arms: int) -> None:
        learner.updates += 1
        turns.append(learner)
        if len(turns) == 3:
            raise LinkError("the link broke", expected="", got="", fix="")

    monkeypatch.setattr("robot_rl.learn.checkpoint.write_synced", full)
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    monkeypatch.setattr(process, "LinkServer", lambda *_: nullcontext())
    monkeypatch.setattr(process, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(process, "turn", turn)
    monkeypatch.setattr(Learner, "close", lambda _: closed.append(True))
    with pytest.raises(LinkError, match="the link broke"):
        process.run(run_dir)
    assert caplog.text.count("No space left") == len(turns) == 3
    assert closed == [True]


def test_a_learner_by_hand_outlives_its_shell_and_ends_in_order_with_its_terminal(
    tmp_path: Path,
) -> None:
    """With nohup and a shell that is left, it goes on; without nohup, SIGHUP has it save."""
    words = ["experiment=reach", "runtime=ros", f"run_dir={tmp_path}/run"]
    port = probe(HOST, 0)
    Experiment.compose([*words, f"link.port={port}"]).save()
    log = tmp_path / "log"
    learner = f"{sys.executable} -m robot_rl.run.learner {tmp_path}/run"
    with log.open("w") as out:
        shell = subprocess.run(
            ["sh", "-c", f"nohup {learner} >/dev/null & echo $!"],
            stdout=subprocess.PIPE, stderr=out, text=True, check=True, timeout=20,
        )  # fmt: skip
    pid = int(shell.stdout)
    try:
        until(lambda: _listens(port), 60.0)
        os.kill(pid, signal.SIGHUP)
        time.sleep(2.0)  # it looks after its supervisor more often
        assert _listens(port), log.read_text()
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not _listens(port), 20.0)
    with subprocess.Popen(learner.split()) as again:
        until(lambda: _listens(port), 60.0)
        again.send_signal(signal.SIGHUP)
        assert again.wait(20) == 0


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HOST, port)) == 0
