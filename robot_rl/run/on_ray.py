"""Jobs on a Ray cluster: runs of a study, and simulated actors that feed one learner.

Each job is the command line that would run here, as a subprocess of a Ray task, in a temporary
folder of whatever machine Ray chose. What it reads travels there as a tar archive, and the folder
it writes comes back as one; the machines need no common file system, but each needs robot-rl.

Ray itself serialises with pickle and authenticates nobody by default: a cluster is one trust zone,
on a network of its own (https://docs.ray.io/en/latest/ray-security/index.html). What the learner
takes in still comes over the link alone, from actors whose keys it knows.

The only module that imports Ray.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import LEARNER_STORE
from robot_rl.errors import ConfigError, SetupError, StoreError
from robot_rl.ros.supervise import BACKOFF_MAX_S, BACKOFF_MIN_S, EXIT_SETUP, Exit
from robot_rl.run.arms import folder_of
from robot_rl.run.jobs import Job
from robot_rl.store.store import Store
from robot_rl.system.supervised import SUPERVISOR_PID

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

LIFE = 1_000_000  # episodes between two lives of an actor that begins with an empty store

log = logging.getLogger(__name__)

HERE = "127.0.0.1"
LOST = 75  # exit code of a job whose machine or worker has gone: it may run elsewhere
MAX_FAILURES = 20  # of an actor, while the run goes on
CONNECT_S = 15.0  # to a cluster that is there
PR_SET_PDEATHSIG = 1  # prctl(2): a signal when the parent ends
SETTINGS = {  # of Ray, unless somebody has set them: no statistics for its makers
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
ON_LOOPBACK = {  # without this, Ray takes the machine's address and listens on every interface
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}

Folders = Mapping[str, bytes]
"""Relative path of a folder -> a tar archive of what is in it."""


@contextmanager
def cluster(address: str, cpus: int) -> Iterator[Any]:
    """The module `ray`, connected. address: of a cluster's head, or "" = a cluster of this machine.

    cpus: how many jobs are to run at once. Our own cluster listens on loopback only, and ends here.

    Raises:
        SetupError: Ray is not installed, nobody answers at `address`, or the cluster is too small.
    """
    for name, value in (SETTINGS if address else SETTINGS | ON_LOOPBACK).items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise SetupError(
            "Ray is not installed",
            expected="import ray works",
            got=str(error),
            fix="pip install 'robot-rl[fleet]', here and on every machine of the cluster",
        ) from error
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address:
        _refuse_silence(address)
        quiet["address"] = address
    else:
        quiet |= {
            "_node_ip_address": HERE,
            "include_dashboard": False,
            "num_cpus": max(cpus, os.cpu_count() or 1),
        }
    try:
        ray.init(**quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise SetupError(
            "the Ray cluster does not let us in",
            expected=f"a cluster at {address or HERE} with this version of Ray and Python",
            got=str(error).strip().splitlines()[0],
            fix="ray status, on that machine; the versions on both sides have to be the same",
        ) from error
    try:
        if not address and any(n["NodeManagerAddress"] != HERE for n in ray.nodes()):
            raise SetupError(
                "the Ray cluster of this machine would listen on its network",
                expected=f"Ray on {HERE} only",
                got="Ray was imported before robot-rl could tell it so",
                fix="import nothing of Ray before; or name a cluster of yours: --ray HOST:PORT",
            )
        there = int(ray.cluster_resources().get("CPU", 0))
        if there < cpus:
            raise SetupError(
                "the cluster is too small for this many jobs at once",
                expected=f"at least {cpus} CPUs",
                got=f"{there}",
                fix="start ray on more machines, or ask for fewer actors or --jobs",
            )
        yield ray
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself would try for minutes, and then end this process."""
    import socket

    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    try:
        if not host or not port.isdecimal():
            raise OSError("not HOST:PORT")
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise SetupError(
            f"nobody answers at the Ray address {address}",
            expected="HOST:PORT of the head of a cluster, e.g. 10.0.0.5:6379",
            got=str(error),
            fix="ray start --head --node-ip-address HOST there; --ray alone uses this machine",
        ) from error


def packed(folder: Path, leave_out: Sequence[str] = ()) -> bytes:
    """A tar archive of a folder's files; leave_out: suffixes of names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith(tuple(leave_out) or ("\0",)):
                archive.add(path, str(path.relative_to(folder)))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Put the files of `packed` into a folder.

    Raises:
        StoreError: no such archive; it holds something else than files, names that lead out of the
            folder, or more than its own bytes (tar can describe files of mostly nothing).
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            plain = all(m.type in tarfile.REGULAR_TYPES and not m.issparse() for m in members)
            if not plain or sum(m.size for m in members) > len(data):
                raise ValueError("an entry that is no plain file, or larger than the archive")
            archive.extractall(folder, members, filter="data")
    except (tarfile.TarError, OSError, ValueError, LookupError, OverflowError) as error:
        raise StoreError(
            f"the files of a job cannot be unpacked into {folder}",
            expected="a tar archive of plain files, as a job of this version sends it",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="install the same robot-rl version on every machine of the cluster",
        ) from error


def work(words: Sequence[str], folder: str, needs: Folders) -> tuple[int, bytes, bytes]:
    """Run one job on this machine: (exit code, archive of `folder`, what it printed).

    words: arguments of the interpreter; every path in them is relative. Runs in a task of Ray.
    """
    with tempfile.TemporaryDirectory(prefix="robot-rl-job-") as name:
        root = Path(name)
        for path, data in needs.items():
            unpack(data, root / path)
        (root / folder).parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, SUPERVISOR_PID: str(os.getpid()), "OMP_NUM_THREADS": "1"}
        with (root / "job.log").open("w+b") as output:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=root,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
                check=False,
            )
            output.seek(0)
            said = output.read()
        return done.returncode, packed(root / folder), said


def _end_with_parent() -> None:
    """A cancelled task takes its job with it. Runs in the child, before its program."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class RayJob:
    """A job on the cluster; when it ends, its folder and its log are put where they belong."""

    def __init__(self, ray: Any, reference: Any, folder: Path, log_file: Path) -> None:
        self._ray, self._reference = ray, reference
        self._folder, self._log_file = folder, log_file
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code; `LOST` when the machine has gone, None while it runs."""
        if self._code is None and self._ray.wait([self._reference], timeout=0)[0]:
            try:
                code, data, said = self._ray.get(self._reference)
            except self._ray.exceptions.RayError as error:
                code, data, said = LOST, b"", f"the job was lost: {error}\n".encode()
            self._log_file.parent.mkdir(parents=True, exist_ok=True)
            with self._log_file.open("ab") as file:
                file.write(said)
            if data:
                unpack(data, self._folder)
            self._code = code
        return self._code


class RayJobs:
    """`jobs.Jobs` on a cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # not again by Ray itself: whoever waits for the job knows whether it may run twice
        self._work = ray.remote(num_cpus=1, max_retries=0)(work)

    def start(self, words: Sequence[str], folder: Path, needs: Sequence[Path] = ()) -> Job:
        """See `Jobs.start`. All paths have to be relative: they are the same on every machine.

        Raises:
            ConfigError: a path is absolute.
        """
        for path in (folder, *needs):
            if path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    "a job on another machine cannot use this path",
                    expected="a path below the folder in which you are, e.g. runs/study",
                    got=str(path),
                    fix="cd to where it lies, and name it relative to that",
                )
        there = {str(path): packed(path) for path in (*needs, folder) if path.is_dir()}
        return self.send(words[1:], folder, there, folder.with_suffix(".log"))

    def send(
        self,
        words: Sequence[str],
        folder: Path,
        needs: Folders,
        log_file: Path,
        into: Path | None = None,
    ) -> RayJob:
        """Start a job whose files are packed already.

        words: without the interpreter; folder: what it writes there; into: where that goes here.
        """
        reference = self._work.remote(list(words), str(folder), dict(needs))
        return RayJob(self._ray, reference, into or folder, log_file)


@contextmanager
def jobs_on(address: str, count: int) -> Iterator[RayJobs]:
    """Jobs on a cluster, `count` at once. Raises as `cluster`."""
    with cluster(address, count) as ray:
        yield RayJobs(ray)


class RayActors:
    """The simulated actors of a run, each a job on the cluster; watched like processes.

    An actor whose machine has gone begins anew elsewhere, with an empty store: its rows are at the
    learner, and new ones have other numbers (`LIFE`).
    """

    def __init__(self, ray: Any, experiment: Experiment) -> None:
        if experiment.link.is_loopback and len(ray.nodes()) > 1:
            raise ConfigError(
                "actors on other machines would not find the learner",
                expected="link.host: an address of this machine in the network of the cluster",
                got=f"link.host={experiment.link.host}",
                fix="robot-rl keys FOLDER on every machine, then "
                "link.host=ADDRESS link.key_folder=FOLDER (docs/several_arms.md)",
            )
        self._jobs = RayJobs(ray)
        self._arms = {f"{arm.arm}-actor": arm for arm in experiment.arms}
        self._lives = {label: _lives_before(arm) for label, arm in self._arms.items()}
        self._failures = dict.fromkeys(self._arms, 0)
        self._again_s: dict[str, float] = {}
        self._running: dict[str, RayJob] = {label: self._begin(label) for label in self._arms}

    @property
    def labels(self) -> set[str]:
        """Names of the actors, as in `graph.NodeSpec.label`."""
        return set(self._arms)

    def poll(self) -> list[Exit]:
        """Notice ends, start again what is due; returns the ends since the last call."""
        exits, now_s = [], time.monotonic()
        for label in [name for name, due_s in self._again_s.items() if now_s >= due_s]:
            del self._again_s[label]
            self._running[label] = self._begin(label)
        for label, job in list(self._running.items()):
            code = job.poll()
            if code is None:
                continue
            del self._running[label]
            self._lives[label] += 1
            self._failures[label] += 1
            again = code not in (0, EXIT_SETUP) and self._failures[label] <= MAX_FAILURES
            delay_s = None
            if again:
                delay_s = min(BACKOFF_MIN_S * 2 ** self._failures[label], BACKOFF_MAX_S)
                self._again_s[label] = now_s + delay_s
                log.warning("%s ended with code %d, again in %.1f s", label, code, delay_s)
            exits.append(Exit(label, code, delay_s, fatal=code != 0 and not again))
        return exits

    def _begin(self, label: str) -> RayJob:
        arm, life = self._arms[label], self._lives[label]
        run = Path(arm.run_name)
        folder = folder_of(run, arm.arm)
        needs = {str(folder): packed(arm.run_dir, (".sqlite", "-wal", "-shm", ".jsonl", ".bin"))}
        if arm.link.key_folder is None:  # the keys of this run; a folder is on each machine
            needs[str(run / "keys")] = _keys_of(arm)
        words = ["-P", "-m", "robot_rl.run.sim_actor", str(folder), str(life * LIFE)]
        log_file = arm.home / "logs" / f"{label}.log"
        return self._jobs.send(words, folder, needs, log_file, into=arm.run_dir)


def _lives_before(arm: Experiment) -> int:
    """How many stores of this actor are lost already, in a run that is continued."""
    path = arm.home / LEARNER_STORE
    if not path.is_file():
        return 0
    with Store(path) as store:
        return -(-store.next_episode(arm.run_name, arm.actor) // LIFE)


def _keys_of(arm: Experiment) -> bytes:
    """The actor's own pair and the learner's public key: no other secret leaves this machine."""
    from robot_rl.link.auth import keys_for

    keys_for(arm.link, arm.home, arm.key_name, arm.key_names)  # makes them
    with tempfile.TemporaryDirectory() as name:
        for file in (f"{arm.key_name}.secret", f"{arm.key_name}.public", "learner.public"):
            shutil.copy(arm.home / "keys" / file, name)
        return packed(Path(name))
