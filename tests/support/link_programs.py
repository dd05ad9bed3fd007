"""Programs that the kill tests start and kill: a writer, an actor and a learner, as processes.

    python link_programs.py writer FOLDER          records episodes until it is killed
    python link_programs.py actor FOLDER PORT      the same, replicates them, removes old ones
    python link_programs.py learner FOLDER PORT    takes rows, publishes weights

Each appends to FOLDER/<role>.log: "ready", and for every step "p E S" before it is handed to the
store and "c E S" once it is committed. A file FOLDER/stop ends them politely.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.store.store import Store
from robot_rl.store.writer import StoreWriter
from robot_rl.types import Ending, EpisodeId, Weights

SPEC = sample_spec(images=1, image_size=32)
RUN, ACTOR = "run", "actor-0"
STEPS = 40  # per episode
TICK_S = 0.002


class Program:
    """A child process of a test: starts, is killed, starts again."""

    def __init__(self, role: str, folder: Path, *arguments: object) -> None:
        self.log = folder / f"{role}.log"
        self._command = [sys.executable, __file__, role, str(folder), *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 20.0) -> None:
        """Start and wait until it says that it works."""
        lives = self.lines().count("ready")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "ROBOT_RL_DISK_RESERVE_BYTES": "0"}
        with self.log.with_suffix(".err").open("ab") as errors:
            self._process = subprocess.Popen(self._command, stderr=errors, env=environment)
        deadline_s = time.monotonic() + timeout_s
        while self.lines().count("ready") == lives:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(self.log.with_suffix(".err").read_text()[-2000:])
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wait(self, timeout_s: float) -> int:
        """Wait for a polite end; returns the exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def lines(self) -> list[str]:
        """Whole lines of its log."""
        return self.log.read_text().split("\n")[:-1] if self.log.exists() else []


def main() -> int:
    """Run one role."""
    role, folder = sys.argv[1], Path(sys.argv[2])
    if role == "learner":
        return learner(folder, int(sys.argv[3]))
    if role == "writer":
        return writer(folder)
    return actor(folder, int(sys.argv[3]))


def say(folder: Path, role: str, text: str) -> None:
    """Append one line; a single write, so a kill never leaves half of it between others."""
    file = os.open(folder / f"{role}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def record(folder: Path, role: str, store: Store) -> None:
    """Record episodes through the writer thread until the stop file appears."""
    store.recover(RUN, ACTOR)
    rng = np.random.default_rng(os.getpid())
    with StoreWriter(store) as out:
        say(folder, role, "ready")
        while not (folder / "stop").exists():
            id = EpisodeId(RUN, ACTOR, store.next_episode(RUN, ACTOR))
            out.put([start_row(SPEC, id), frame_row(SPEC, id, 0, rng)])
            for step in range(STEPS):
                ending = Ending.TRUNCATED if step == STEPS - 1 else None
                row = step_row(SPEC, id, step, rng, ending=ending)
                say(folder, role, f"p {id.episode} {step}")
                out.put([row, frame_row(SPEC, id, step + 1, rng)])
                out.flush()
                say(folder, role, f"c {id.episode} {step}")
                time.sleep(TICK_S)


def writer(folder: Path) -> int:
    """Record without a link."""
    with Store(folder / "actor.sqlite", spec=SPEC) as store:
        record(folder, "writer", store)
    return 0


def actor(folder: Path, port: int) -> int:
    """Record and replicate."""
    from robot_rl.link.auth import load_keys
    from robot_rl.link.client import LinkClient
    from robot_rl.link.config import LinkConfig

    config = LinkConfig(
        port=port,
        weights_period_s=0.05,
        reply_timeout_s=1.0,
        poll_s=0.005,
        keep_gb=0.0005,  # four episodes
        keep_episodes=2,
    )
    keys = load_keys(folder / "keys", "actor")
    with (
        Store(folder / "actor.sqlite", spec=SPEC) as store,
        LinkClient(config, keys, SPEC, store.path) as client,
    ):
        record(folder, "actor", store)
        return 0 if client.drain(20.0) and client.newest_weights() else 1


def learner(folder: Path, port: int) -> int:
    """Serve until killed."""
    from robot_rl.link.auth import load_keys
    from robot_rl.link.config import LinkConfig
    from robot_rl.link.server import LinkServer

    keys = load_keys(folder / "keys", "learner")
    with (
        Store(folder / "learner.sqlite", spec=SPEC) as store,
        LinkServer(LinkConfig(port=port), keys, SPEC, store) as server,
    ):
        say(folder, "learner", "ready")
        version = 0
        while True:
            server.poll(20)
            version += 1
            data = version.to_bytes(8, "little") * 1000
            server.publish(Weights(version, hashlib.sha256(data).hexdigest(), data))


if __name__ == "__main__":
    sys.exit(main())
