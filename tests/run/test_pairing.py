"""What both machines have after a pairing, and every reason for which there is none."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main as robot_rl
from robot_rl.config.run_folder import ACTOR_STORE, LINK, PAIRING, read_facts
from robot_rl.errors import ConfigError, LinkError, RobotRLError
from robot_rl.link import pairing as protocol
from robot_rl.link.auth import keys_for, run_keys
from robot_rl.link.client import LinkClient
from robot_rl.link.invitation import new_invitation, read_invitation
from robot_rl.link.server import LinkServer
from robot_rl.run import pairing
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import system_of
from robot_rl.run.pairing import invite, link_state, listening, pair
from robot_rl.run.preflight import surroundings
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId
from tests.support.pairs import free_port, until

HERE = "127.0.0.2"  # stands for the learner's machine


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "TRY_S", 1.0)


def experiment(folder: Path, **changes: object) -> Experiment:
    """A run whose learner is to be at HERE."""
    words = {"experiment": "reach", "runtime": "ros", "link": "remote", "link.host": HERE}
    words |= {"link.port": free_port(HERE), "run_dir": folder, **changes}
    return Experiment.compose([f"{k}={v}" for k, v in words.items()])


class Machines:
    """A robot's and a learner's run folder."""

    def __init__(self, folder: Path) -> None:
        self.robot, self.learner = folder / "robot" / "run-7", folder / "learner" / "run-7"
        self.experiment = experiment(self.robot)

    def pair(self, **given: Any) -> Path:
        """The learner's side takes what the robot's offers."""
        with invite(self.experiment) as inviter:
            text = inviter.invitation.encode()
            folder = pair(text, self.learner, given.get("bind"), lambda _hint: None)
            until(lambda: inviter.over)
            assert inviter.paired
        return folder


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_both_machines_have_the_run_and_each_its_own_secret(machines: Machines) -> None:
    assert machines.pair() == machines.learner
    there = Experiment.load(machines.learner)
    assert there.hash == machines.experiment.hash and there.spec == machines.experiment.spec
    ours, theirs = run_keys(machines.robot), run_keys(machines.learner)
    assert {p.name for p in ours.iterdir()} == {"actor.secret", "actor.public", "learner.public"}
    assert {p.name for p in theirs.iterdir()} == {
        "learner.secret",
        "learner.public",
        "actor.public",
    }
    for folder, name in ((ours, "actor"), (theirs, "learner")):
        assert stat.S_IMODE((folder / f"{name}.secret").stat().st_mode) == 0o600
    for name in ("actor", "learner"):
        assert (ours / f"{name}.public").read_bytes() == (theirs / f"{name}.public").read_bytes()
    for run in (machines.robot, machines.learner):
        text = (run / "audit.log").read_text()
        assert "pairing: " in text and "secret" not in text
    kept = (machines.learner / "pairing.json").read_text()
    assert (ours / "actor.secret").read_text().strip() not in kept


def test_the_default_folder_has_the_name_of_the_robots(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with invite(machines.experiment) as inviter:
        text = inviter.invitation.encode()
        assert pair(text, None, None, lambda _hint: None) == Path("runs/reach/run-7")
        until(lambda: inviter.over)
    with pytest.raises(LinkError, match=r"(?s)used already.*robot-rl learner runs/reach/run-7"):
        pair(text, None, None, lambda _hint: None)


def record(store: Store, episodes: range, spec: Spec) -> None:
    for number in episodes:
        store.append(episode_rows(spec, EpisodeId("run-7", "actor", number), 5))


class Link:
    """Robot and learner of two folders, joined as the actor and the learner process join them."""

    def __init__(self, machines: Machines) -> None:
        experiment = machines.experiment
        self.spec, link = experiment.spec, experiment.link
        self.actor = Store(machines.robot / ACTOR_STORE, spec=self.spec, reserve_bytes=0)

        def read() -> Any:
            return keys_for(link, machines.robot, "actor")

        machines.robot.mkdir(parents=True, exist_ok=True)
        self.client = LinkClient(
            dataclasses.replace(link, reply_timeout_s=1.0, backoff_max_s=0.2),
            read(),
            self.spec,
            self.actor.path,
            pairing=read,
            status_file=machines.robot / LINK,
        )

    def serve(self, folder: Path) -> int:
        """The learner's machine serves until all rows are there; how many it has."""
        there = Experiment.load(folder)
        link = dataclasses.replace(there.link, host=listening(there.link, folder))
        keys = keys_for(link, folder, "learner")
        with (
            Store(folder / "learner.sqlite", spec=there.spec, reserve_bytes=0) as store,
            LinkServer(link, keys, there.spec, store) as server,
        ):
            until(lambda: not server.poll(5) and not self.client.status()["pending_rows"], 20.0)
            return store.last_seq()

    def close(self) -> None:
        self.client.stop(drain_s=0.0)
        self.actor.close()


def test_what_was_recorded_before_anybody_was_there_is_sent_and_a_new_machine_gets_all_of_it(
    machines: Machines,
) -> None:
    machines.experiment.save()  # as whoever starts a run does, before there is a store
    link = Link(machines)
    try:
        link.client.start()
        record(link.actor, range(3), link.spec)
        until(lambda: link.client.status()["pending_rows"] == 36)
        link.client.raise_if_refused()  # nobody there: the robot goes on
        assert "not paired, 36 rows wait here" in until_said(machines, "36 rows")
        machines.pair()
        assert link.serve(machines.learner) == 36
        record(link.actor, range(3, 4), link.spec)
        until(lambda: link.client.status()["pending_rows"] == 12)
        assert link.serve(machines.learner) == 48  # again, from its folder alone
        assert "the robot goes on" in until_said(machines, "not reached|refused")
        machines.learner = machines.learner.with_name("another-machine")
        machines.pair()
        until(lambda: link.client.status()["pending_rows"] == 48)
        assert link.serve(machines.learner) == 48
        link.client.raise_if_refused()
    finally:
        link.close()


def until_said(machines: Machines, words: str) -> str:
    import re

    until(lambda: re.search(words, link_state(machines.experiment)[0]), 20.0)
    return link_state(machines.experiment)[0]


def test_what_an_earlier_actor_said_of_the_link_is_not_believed(machines: Machines) -> None:
    machines.pair()
    path = machines.robot / LINK
    path.write_text(json.dumps({"connected": True, "pending_rows": 7, "learner": {"updates": 9}}))
    said, learner = link_state(machines.experiment)
    assert "connected, 7 rows" in said and learner == {"learner/updates": 9}
    long_ago_s = time.time() - 60
    os.utime(path, (long_ago_s, long_ago_s))
    said, learner = link_state(machines.experiment)
    assert "not reached, 7 rows wait here" in said and not learner


def test_a_learner_that_has_another_address_is_no_other_experiment(machines: Machines) -> None:
    link = dict(machines.experiment.config["link"]) | {"host": "127.0.0.9"}
    moved = dataclasses.replace(
        machines.experiment, config=dict(machines.experiment.config) | {"link": link}
    )
    moved.save()
    assert Experiment.load(machines.robot).link.host == "127.0.0.9"
    other = dict(moved.config) | {"link": link | {"status_period_s": 9.0}}
    with pytest.raises(ConfigError, match=r"link\.status_period_s"):
        dataclasses.replace(moved, config=other).save()


def test_a_kill_in_a_pairing_leaves_no_torn_record(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged pairing.json of one run kept every later run from being paired."""
    write = Path.write_text

    def torn(self: Path, data: str, *more: Any, **options: Any) -> int:
        return write(self, data[:5] if self.name == PAIRING else data, *more, **options)

    monkeypatch.setattr(Path, "write_text", torn)
    folder = machines.pair()
    assert read_facts(folder / PAIRING)["used"]


def test_the_same_machine_paired_again_keeps_its_key_and_its_rows(machines: Machines) -> None:
    machines.pair()
    before = (run_keys(machines.learner) / "learner.secret").read_bytes()
    link = Link(machines)
    try:
        link.client.start()
        record(link.actor, range(1), link.spec)
        until(lambda: link.client.status()["pending_rows"] == 12)
        assert link.serve(machines.learner) == 12
        machines.pair()
        assert (run_keys(machines.learner) / "learner.secret").read_bytes() == before
        assert link.serve(machines.learner) == 12 and not link.actor.pending_count()
    finally:
        link.close()


def test_behind_a_router_the_learner_listens_elsewhere_and_remembers_it(machines: Machines) -> None:
    """The robot knows a forwarded address; the pairing and the link go through it."""
    from robot_rl.bench.faults.network import Network

    port = machines.experiment.link.port
    with Network((HERE, port), ("127.0.0.3", port)):
        machines.pair(bind="127.0.0.3")
        assert listening(machines.experiment.link, machines.learner) == "127.0.0.3"
        link = Link(machines)
        try:
            link.client.start()
            record(link.actor, range(1), link.spec)
            until(lambda: link.client.status()["pending_rows"] == 12)
            assert link.serve(machines.learner) == 12
        finally:
            link.close()


# -- bad input: one error, the fix, nothing lost ---------------------------------------------------


def refused(machines: Machines, changes: Mapping[str, Any]) -> RobotRLError:
    """The error of the learner's side for an offer that was changed on its way."""
    inviter = invite(machines.experiment)
    inviter._offer = dataclasses.replace(inviter._offer, **changes)
    with inviter:
        with pytest.raises(RobotRLError) as caught:
            pair(inviter.invitation.encode(), None, None, lambda _hint: None)
        until(lambda: caught.value.summary in inviter.state)  # the robot's side reads it, too
        assert not inviter.over
    assert not (run_keys(machines.robot) / "learner.public").exists()
    return caught.value


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "../../.ssh"}, "a folder cannot have the run's name"),
        ({"run": ".hidden"}, "a folder cannot have the run's name"),
        ({"run": "a" * 200}, "a folder cannot have the run's name"),
        ({"config_hash": "0" * 16}, "the configuration has another hash"),
        ({"actors": {}}, "the actors' keys are not as expected"),
        ({"actors": {"../actor": "x"}}, "the actors' keys are not as expected"),
        ({"actors": {"learner": "x"}}, "the actors' keys are not as expected"),
    ],
)
def test_an_offer_that_is_not_ours_makes_no_folder(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any], words: str,
) -> None:  # fmt: skip
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    assert words in refused(machines, changes).summary
    assert not list((tmp_path / "desk").iterdir())


def test_several_actors_come_over_and_a_bad_key_among_them_is_refused(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = keys_for(machines.experiment.link, machines.experiment.save(), "actor").public.decode()
    error = refused(machines, {"actors": {"actor": own, "actor-left": "no key"}})
    assert "'actor-left' is no key" in error.summary
    from robot_rl.link.auth import make_keys

    make_keys(run_keys(machines.robot), ("actor-left",))
    machines.pair()
    assert (run_keys(machines.learner) / "actor-left.public").is_file()


def test_other_code_of_a_task_is_a_readable_difference(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = machines.experiment.spec.as_dict()
    error = refused(machines, {"spec": plain | {"control_hz": 20.0}})
    assert isinstance(error, ConfigError) and "control_hz: 20.0 -> 10.0" in error.got
    assert "same robot-rl version" in error.fix


def test_a_config_of_another_version_names_the_key(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robot_rl.config.run_folder import config_hash

    monkeypatch.chdir(tmp_path)
    config = machines.experiment.resolved()
    config["algo"] = config["algo"] | {"gamam": 0.9}
    plain = json.loads(json.dumps(config))
    error = refused(machines, {"config": plain, "config_hash": config_hash(plain)})
    assert "algo.gamam" in error.summary and "gamma" in error.fix


def test_a_folder_of_another_experiment_is_not_touched(machines: Machines, tmp_path: Path) -> None:
    other = experiment(machines.learner, seed=5)
    other.save()
    with (
        invite(machines.experiment) as inviter,
        pytest.raises(ConfigError, match="belongs to another experiment"),
    ):
        pair(inviter.invitation.encode(), machines.learner, None, lambda _hint: None)
    assert Experiment.load(machines.learner).seed == 5


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails prints."""
    assert robot_rl(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "expected:" in error and "fix:" in error
    return error


def test_bad_words_are_one_error_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    robot = b"0" * 40
    text = new_invitation("203.0.113.7", 5597, "00" * 8, robot).encode()
    assert "no pairing string" in said(["learner", "--pair", "runs/reach/x"], capsys)
    assert robot_rl(["learner", "--pair", text[:-4]]) == 2
    out, error = capsys.readouterr()
    assert "damaged" in error and "waiting" not in out
    assert "another robot-rl version" in said(["learner", "--pair", "rrl9:" + text[5:]], capsys)
    elsewhere = said(["learner", "--pair", text], capsys)
    assert "203.0.113.7 is not an address of this machine" in elsewhere and "--bind" in elsewhere
    assert "--bind" in said(["learner", "--pair", text, "--bind", "203.0.113.8"], capsys)
    assert "every network" in said(["learner", "--pair", text, "--bind", "0.0.0.0"], capsys)
    assert "give a run folder" in said(["learner"], capsys)
    assert "--bind goes with --pair" in said(["learner", ".", "--bind", "127.0.0.1"], capsys)
    assert "no run in" in said(["pair", "nowhere"], capsys)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = new_invitation("127.0.0.1", port, "00" * 8, robot).encode()
        assert "the port is in use" in said(["learner", "--pair", taken], capsys)


def test_a_name_that_this_machine_knows_as_loopback_is_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairing.socket, "gethostbyname", lambda _name: "127.0.1.1")
    with pytest.raises(LinkError, match=r"(?s)here that is 127.0.1.1.*--bind"):
        pairing._own_address("gpu-box", given=False)


def test_a_learner_without_torch_says_so_before_the_string_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from robot_rl.cli import common

    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(common.importlib, "import_module", missing)
    from robot_rl.cli import learner

    with pytest.raises(RobotRLError, match=r"(?s)package 'torch'.*robot-rl\[learn\]"):
        learner.run(["--pair", "rrl1:whatever"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"link.host": '""'}, "hostname -I"),
        ({"link.host": "'a b'"}, "IPv4 address or a host name"),
        ({"link.host": "0.0.0.0"}, "wildcard"),
        ({"link.port": 0}, "not 0"),
        ({"link.key_folder": "keys"}, "leave link.key_folder out"),
        ({"runtime": "lockstep"}, "runtime=ros"),
    ],
)
def test_a_link_that_cannot_be_is_refused_by_the_configuration(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        experiment(tmp_path / "run", **changes).check()


def test_a_run_on_one_machine_invites_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = Experiment.compose(["experiment=reach", "runtime=ros", f"run_dir={tmp_path / 'run'}"])
    local.save()
    assert "no learner on another machine" in said(["pair", str(local.run_dir)], capsys)


def test_a_copied_folder_is_no_paired_one(machines: Machines, capsys: Any) -> None:
    machines.experiment.save()
    with pytest.raises(LinkError, match=r"(?s)not paired with a robot.*robot-rl pair RUN"):
        keys_for(machines.experiment.link, machines.robot, "learner")


def test_the_graph_has_no_learner_and_the_preflight_asks_for_none(machines: Machines) -> None:
    names = [spec.name for spec in system_of(machines.experiment)]
    assert "actor" in names and "learner" not in names
    assert not [f for f in surroundings(machines.experiment, {}) if f.name == "keys"]


def test_the_command_prints_what_the_other_one_reads(
    machines: Machines, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.experiment.save()
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(robot_rl(["pair", str(machines.robot)])))
    thread.start()
    printed = ""

    def line() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return "robot-rl learner --pair rrl1:" in printed

    until(line)
    word = printed.split("--pair ")[1].split(maxsplit=1)[0]
    assert read_invitation(word).port == machines.experiment.link.port
    started: list[Path] = []
    monkeypatch.setattr("robot_rl.run.learner.main", lambda run: started.append(run) or 0)
    assert robot_rl(["learner", "--pair", word, str(machines.learner)]) == 0
    thread.join(30.0)
    assert done == [0] and started == [machines.learner]
    assert "paired with" in printed + capsys.readouterr().out
