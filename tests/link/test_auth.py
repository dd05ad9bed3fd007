"""Keys, the allow-list, and the rule that an open address needs made keys."""

from __future__ import annotations

import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError, LinkError, SetupError
from robot_rl.link import auth
from robot_rl.link.auth import (
    LinkSetupError,
    ensure_keys,
    keys_for,
    load_keys,
    make_keys,
    role_of,
)
from robot_rl.link.config import LinkConfig


def test_secrets_are_private_and_pairs_belong_together(tmp_path: Path) -> None:
    files = make_keys(tmp_path / "keys", ("learner", "actor-left", "policy"))
    assert len(files) == 6
    for path in files:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o600 if path.suffix == ".secret" else 0o644)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    keys = load_keys(tmp_path / "keys", "actor-left")
    assert keys.peers[keys.public] == "actor-left" and role_of(keys.name) == "actor"
    assert keys.public_of("learner") == load_keys(tmp_path / "keys", "learner").public
    assert keys.secret.decode() not in repr(keys)


def test_keys_are_not_overwritten_unless_forced(tmp_path: Path) -> None:
    make_keys(tmp_path)
    before = load_keys(tmp_path, "actor").public
    with pytest.raises(LinkError, match="keys exist already"):
        make_keys(tmp_path, ("actor",))
    make_keys(tmp_path, ("actor-2",))
    assert load_keys(tmp_path, "actor").public == before
    make_keys(tmp_path, ("actor",), force=True)
    assert load_keys(tmp_path, "actor").public != before


def test_missing_readable_and_damaged_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="robot-rl keys"):
        load_keys(tmp_path, "actor")
    make_keys(tmp_path)
    secret = tmp_path / "actor.secret"
    secret.chmod(0o640)
    with pytest.raises(LinkError, match="chmod 600") as caught:
        load_keys(tmp_path, "actor")
    assert isinstance(caught.value, SetupError)  # so no process is started again because of it
    secret.chmod(0o600)
    (tmp_path / "policy.public").write_text("not a key")
    with pytest.raises(LinkError, match=r"policy\.public is damaged"):
        load_keys(tmp_path, "actor")
    (tmp_path / "policy.public").unlink()
    (tmp_path / "learner.public").unlink()
    with pytest.raises(LinkError, match=r"copy learner\.public"):
        load_keys(tmp_path, "actor").public_of("learner")


@pytest.mark.parametrize("name", ["", "../actor", "a/b", "ä", "a b"])
def test_key_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(LinkError, match="unusable key name"):
        make_keys(tmp_path, (name,))


def test_many_processes_that_start_at_once_share_one_set_of_run_keys(tmp_path: Path) -> None:
    config = LinkConfig()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: keys_for(config, tmp_path, "actor"), range(16)))
    assert len({k.public for k in found}) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["keys"]
    assert ensure_keys(tmp_path / "keys") == tmp_path / "keys"


def test_an_address_beyond_this_machine_needs_a_key_folder(tmp_path: Path) -> None:
    open_config = LinkConfig(host="192.0.2.7")
    with pytest.raises(LinkError, match="robot-rl keys"):
        keys_for(open_config, tmp_path, "actor")
    make_keys(tmp_path / "made")
    ready = LinkConfig(host="192.0.2.7", key_folder=str(tmp_path / "made"))
    assert keys_for(ready, tmp_path, "learner").name == "learner"


@pytest.mark.parametrize(
    "values",
    [
        {"host": "0.0.0.0"},
        {"host": "*"},
        {"host": "::"},
        {"port": 70_000},
        {"batch_bytes": 16 << 20},
        {"batch_rows": 5000},
        {"poll_s": 0.0},
    ],
)
def test_config_refuses_wildcards_and_nonsense(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        resolve("link", {"name": "local", **values})


def test_config_is_registered_and_knows_loopback() -> None:
    assert resolve("link", {"name": "local"}) == LinkConfig()
    assert LinkConfig().is_loopback and LinkConfig(host="localhost").is_loopback
    assert not LinkConfig(host="10.0.0.1").is_loopback and not LinkConfig(host="gpu").is_loopback


def test_a_port_that_another_learner_has_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "ENDS_S", 0.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = LinkConfig(port=other.getsockname()[1])
        with pytest.raises(LinkSetupError, match="another learner listens") as refused:
            auth.need_port(taken)
        said = refused.value.fix.partition("link.port=")[2].split()[0]
        auth.need_port(LinkConfig(port=int(said)))
        auth.need_port(LinkConfig(port=0))
        auth.need_port(replace(taken, host="192.0.2.7"))  # of another machine: it will say
    auth.need_port(taken)


def test_a_learner_that_is_about_to_end_is_waited_for() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        threading.Timer(0.3, other.close).start()
        auth.need_port(LinkConfig(port=port))
