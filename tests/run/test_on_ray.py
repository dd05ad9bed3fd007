"""Jobs on a Ray cluster of this machine: what travels, what comes back, what is refused."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_rl.errors import ConfigError, SetupError, StoreError
from robot_rl.run import on_ray
from robot_rl.run import study as module
from robot_rl.run.experiment import Experiment
from robot_rl.run.on_ray import LOST, RayActors, RayJobs, cluster, packed, unpack
from robot_rl.run.study import VARIANTS, study
from robot_rl.run.train import train

if importlib.util.find_spec("ray") is None:  # it must not be imported before `cluster` does
    pytest.skip("the fleet extra is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of this machine."""
    with cluster("", 2) as connected:
        yield connected


def wait(job: Any, timeout_s: float = 100.0) -> int:
    """The exit code of a job."""
    deadline_s = time.monotonic() + timeout_s
    while (code := job.poll()) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return code


def listeners(word: str) -> set[str]:
    """Addresses on which processes listen whose command line or environment contains `word`."""
    inodes = set()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if process.name.isdecimal() and word.encode() in said:
                inodes |= {str(fd.readlink()) for fd in (process / "fd").iterdir()}
    found = set()
    for file in ("tcp", "tcp6"):
        for line in Path("/proc/net", file).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                raw = bytes.fromhex(fields[1].split(":")[0])[-4:]
                found.add(socket.inet_ntoa(raw[::-1]))
    return found


def test_a_folder_travels_whole_and_nothing_leads_out_of_it(tmp_path: Path) -> None:
    import io
    import tarfile

    source = tmp_path / "run"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "a.json").write_text("{}")
    (source / "actor.sqlite").write_bytes(b"rows")
    unpack(packed(source, (".sqlite",)), tmp_path / "there")
    assert [p.name for p in (tmp_path / "there").rglob("*") if p.is_file()] == ["a.json"]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(StoreError, match="plain files"):
        unpack(buffer.getvalue(), tmp_path / "there")
    assert not (tmp_path / "evil").exists()


def test_a_job_reads_what_was_sent_and_its_folder_comes_back(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = Path("runs/data")
    given.mkdir(parents=True)
    (given / "word").write_text("hello")
    code = (
        "import pathlib, os; out = pathlib.Path('runs/out'); out.mkdir(parents=True);"
        "(out / 'said').write_text(pathlib.Path('runs/data/word').read_text());"
        "print(os.getcwd()); raise SystemExit(3)"
    )
    job = RayJobs(ray).start([sys.executable, "-c", code], Path("runs/out"), [given])
    assert wait(job) == 3
    assert Path("runs/out/said").read_text() == "hello"
    where = Path("runs/out.log").read_text().strip()
    assert where != str(tmp_path) and not Path(where).exists()  # elsewhere, and cleaned up


def test_a_job_whose_worker_is_killed_is_lost_and_says_so(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    job = RayJobs(ray).start([sys.executable, "-c", code], Path("runs/out"))
    assert wait(job) == LOST
    assert "the job was lost" in Path("runs/out.log").read_text()


def test_the_cluster_of_this_machine_listens_on_loopback_only(ray: Any) -> None:
    session = Path(ray.nodes()[0]["ObjectStoreSocketName"]).parents[1].name
    assert listeners(session) == {"127.0.0.1"}


RESULT = {
    "deterministic": {"successes": 9, "episodes": 10, "cycle_time_s_mean": 2.0},
    "stochastic": {"success": 0.5},
    "env_steps": 100,
    "human_steps": 7,
    "train_s": 60.0,
}


def test_a_study_on_the_cluster_makes_the_same_table(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(name: str, task: str, seed: int, *, folder: Path, **_: object) -> list[str]:
        before = f"{folder / VARIANTS[name].before}-s{seed}"
        code = (
            "import pathlib\n"
            f"run = pathlib.Path({str(folder / name) + f'-s{seed}'!r})\n"
            f"before = pathlib.Path({before!r}, 'eval.json')\n"
            f"assert {not VARIANTS[name].before} or before.is_file()\n"
            "run.mkdir(parents=True)\n"
            f"(run / 'eval.json').write_text({json.dumps(RESULT)!r})"
        )
        return [sys.executable, "-c", code]

    monkeypatch.setattr(module, "command", quick)
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    options: dict[str, Any] = {"names": ["calql_wsrl", "full"], "seeds": 1, "dataset": "data"}
    there = study("lift", **options, folder=Path("there"), jobs=2, where=RayJobs(ray))
    here = study("lift", **options, folder=Path("here"), jobs=2)
    assert there == here and there["full"]["seeds"] == 1
    with pytest.raises(ConfigError, match="relative to that"):
        study("lift", **options, folder=tmp_path / "absolute", where=RayJobs(ray))


def test_an_actor_that_is_lost_begins_a_new_life_with_other_episode_numbers(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["experiment=reach", "runtime=lockstep", "actors=solo", f"run_dir={tmp_path / 'run'}"]
    experiment = Experiment.compose(words)
    experiment.save()
    begun: list[list[str]] = []

    class Ended:
        def __init__(self, code: int) -> None:
            self.code = code

        def poll(self) -> int:
            return self.code

    def send(_self: Any, given: list[str], *_: Any, **__: Any) -> Ended:
        begun.append(given)
        return Ended(LOST if len(begun) == 1 else 0)

    monkeypatch.setattr(RayJobs, "send", send)
    actors = RayActors(ray, experiment)
    assert actors.labels == {"solo-actor"}
    (lost,) = actors.poll()
    assert not lost.fatal and lost.restart_in_s
    deadline_s = time.monotonic() + 10
    while not (ended := actors.poll()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert ended[0].code == 0 and not ended[0].fatal
    assert [int(words[-1]) for words in begun] == [0, on_ray.LIFE]


@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1:1", "nobody answers"), ("nonsense", "not HOST:PORT")],
)
def test_a_wrong_address_is_one_error(address: str, says: str) -> None:
    with pytest.raises(SetupError) as caught, cluster(address, 1):
        pass
    assert says in str(caught.value) and "ray start" in str(caught.value)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SetupError, match=r"robot-rl\[fleet\]"), cluster("", 1):
        pass


@pytest.mark.parametrize("words", [[], ["runtime=ros", "actors=2"]])
def test_ray_runs_simulated_actors_only(words: list[str], tmp_path: Path) -> None:
    experiment = Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'run'}", *words])
    with pytest.raises(ConfigError, match="actors=4 --ray"):
        train(experiment, ray="")
    assert not (tmp_path / "run").exists()
