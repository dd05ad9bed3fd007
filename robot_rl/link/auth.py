"""CURVE keys as files, and who may speak: a folder of keys is the allow-list.

`<name>.public` and `<name>.secret` hold one Z85 key each (40 characters). The part of the name
before the first "-" is the role, so a fleet has `actor-left` and `actor-right`. A machine needs its
own secret and the public keys of those it talks to; whoever has no `.public` file in the learner's
folder is turned away before a byte of theirs reaches a decoder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator

from robot_rl.errors import LinkError, SetupError
from robot_rl.link.config import LinkConfig
from robot_rl.system.ports import probe

NAMES = ("learner", "actor")
KEY_CHARS = 40  # Z85 of 32 bytes
ZAP_DOMAIN = "robot-rl"
ENDS_S = 5.0  # wall; the learner of a run that has just been killed is about to end
NEXT = 10  # ports further on is proposed; policy servers have one of those between


class LinkSetupError(LinkError, SetupError):
    """No restart mends this link: a person has to."""


class KeyFileError(LinkSetupError):
    """A key is missing, damaged or open to others."""


@dataclass(frozen=True, slots=True)
class Keys:
    """One process's key pair and the public keys it knows (public key -> name)."""

    name: str
    public: bytes
    secret: bytes = field(repr=False)
    peers: Mapping[bytes, str]

    def public_of(self, name: str) -> bytes:
        """Public key of another process. Raises `LinkError` when it is not in the folder."""
        for public, known in self.peers.items():
            if known == name:
                return public
        raise KeyFileError(
            f"the key of '{name}' is missing",
            expected=f"a file {name}.public in the key folder",
            got=", ".join(sorted(self.peers.values())) or "no public keys",
            fix=f"copy {name}.public from the machine where `robot-rl keys` was run",
        )


def role_of(name: str) -> str:
    """`"actor-left"` -> `"actor"`."""
    return name.split("-", 1)[0]


def make_keys(
    folder: Path | str, names: Sequence[str] = NAMES, *, force: bool = False
) -> list[Path]:
    """Make a key pair per name; secrets are readable by their owner only. Returns the files.

    Raises:
        LinkError: a key exists already and `force` is not set, or a name is unusable.
    """
    folder = Path(folder)
    for name in names:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise LinkError(
                "unusable key name",
                expected="ASCII letters, digits, - and _",
                got=repr(name),
                fix="e.g. actor-left",
            )
    files = [folder / f"{n}.{kind}" for n in names for kind in ("public", "secret")]
    existing = [path.name for path in files if path.exists()]
    if existing and not force:
        raise LinkError(
            "keys exist already",
            expected="a folder without these keys",
            got=", ".join(existing),
            fix="use them, choose another folder, or force (every machine then needs the new ones)",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in names:
        public, secret = zmq.curve_keypair()
        _write(folder / f"{name}.secret", secret, 0o600)
        _write(folder / f"{name}.public", public, 0o644)
    return files


def ensure_keys(folder: Path | str, names: Sequence[str] = NAMES) -> Path:
    """Make keys for one machine unless they exist; safe when two processes start at once."""
    folder = Path(folder)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".keys-", dir=folder.parent))
        make_keys(fresh, names)
        with suppress(OSError):  # the other process was first: its keys count
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def keys_for(
    config: LinkConfig, run_folder: Path | str, name: str, names: Sequence[str] = NAMES
) -> Keys:
    """Keys from the configured folder, or those of the run: made here if both ends are here.

    On the robot's side of a pair, the learner's key may not be there yet.

    names: of all key pairs of the run, which are made together.

    Raises:
        LinkError: the link leaves this machine and no key folder is configured, or a key is bad.
    """
    if config.key_folder is not None:
        return load_keys(Path(config.key_folder).expanduser(), name)
    require_key_folder(config)
    folder = run_keys(run_folder)
    if not config.paired:
        ensure_keys(folder, names)
    elif role_of(name) == "actor":
        ensure_keys(folder, [n for n in names if role_of(n) == "actor"])
    elif not (folder / f"{name}.secret").exists():
        raise KeyFileError(
            f"{run_folder} is not paired with a robot on this machine",
            expected="a run folder that `robot-rl learner --pair ...` made here",
            got=f"link=remote, and no {name}.secret in {folder}",
            fix="on the robot's machine: robot-rl pair RUN; type here what it prints",
        )
    return load_keys(folder, name)


def run_keys(run_folder: Path | str) -> Path:
    """Where the keys of a run lie that has no `link.key_folder`."""
    return Path(run_folder) / "keys"


def keep_public(folder: Path, name: str, key: str) -> None:
    """Write another machine's public key (Z85); replaces an old one whole.

    Raises:
        LinkError: it is no key.
    """
    try:
        zmq.curve_public(key.encode())  # checks length and alphabet
    except (zmq.ZMQError, ValueError) as error:
        raise LinkError(
            f"the other machine's key '{name}' is no key",
            expected=f"{KEY_CHARS} Z85 characters",
            got=repr(key)[:60],
            fix="run the same robot-rl version on both machines",
        ) from error
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(folder / f"{name}.public", key.encode(), 0o644)


def fingerprint(key: bytes | str) -> str:
    """Eight digits by which people compare a public key on two screens."""
    digits = hashlib.sha256(key if isinstance(key, bytes) else key.encode()).hexdigest()
    return f"{digits[:4]}-{digits[4:8]}"


def require_key_folder(config: LinkConfig) -> None:
    """Raise `LinkError` when the link would leave this machine without keys made for that."""
    if config.key_folder is None and not config.is_loopback and not config.paired:
        raise KeyFileError(
            "the link would leave this machine without its own keys",
            expected="link.key_folder, or a loopback host",
            got=f"host {config.host}, no key folder",
            fix="link=remote pairs two machines (docs/two_machines.md); by hand: run "
            "`robot-rl keys FOLDER`, copy the files, set link.key_folder=FOLDER",
        )


def load_keys(folder: Path | str, name: str) -> Keys:
    """Read the key pair of `name` and every public key beside it.

    Raises:
        LinkError: a file is missing, damaged, or the secret is readable by others.
    """
    folder = Path(folder)
    path = folder / f"{name}.secret"
    secret = _read(path)
    if path.stat().st_mode & 0o077:
        raise KeyFileError(
            f"the secret key {path.name} is readable by others",
            expected="mode 600",
            got=oct(path.stat().st_mode & 0o777)[2:],
            fix=f"chmod 600 {path}; make new keys if somebody may have copied it",
        )
    peers = {_read(p): p.stem for p in sorted(folder.glob("*.public"))}
    return Keys(name=name, public=zmq.curve_public(secret), secret=secret, peers=peers)


def guard(context: zmq.Context, provider: object) -> ThreadAuthenticator:
    """A thread that asks `provider.callback(domain, key)` about each public key (Z85) that arrives.

    Start it before `listen` and stop it after the socket is closed: without it libzmq lets
    everybody in.
    """
    started = ThreadAuthenticator(context)
    started.start()
    started.configure_curve_callback(domain=ZAP_DOMAIN, credentials_provider=provider)
    return started


def listen(router: zmq.Socket, where: LinkConfig, keys: Keys, option: str) -> int:
    """Bind for peers that speak CURVE and pass a `guard`, and return the port.

    option: how a person sets the port, for the error.

    Raises:
        LinkSetupError: the port is taken, or the address is not one of this machine.
    """
    router.curve_server = True
    router.curve_publickey, router.curve_secretkey = keys.public, keys.secret
    router.zap_domain = ZAP_DOMAIN.encode()
    try:
        router.bind(where.endpoint if where.port else f"tcp://{where.host}:*")
    except zmq.ZMQError as error:
        in_use = error.errno == zmq.EADDRINUSE
        raise LinkSetupError(
            f"the {keys.name} cannot listen on {where.host}:{where.port}",
            expected="a free port on an address of this machine",
            got="the port is in use" if in_use else str(error),
            fix=f"end the other server, or set {option}"
            if in_use
            else "set the host to an IP address of this machine",
        ) from error
    return int(router.get_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])


def need_port(where: LinkConfig) -> None:
    """Refuse a port that another learner of this machine has, before anything is started.

    The learner of a run that has just been killed may take some seconds to end.

    Raises:
        LinkSetupError: it is taken.
    """
    give_up_s = time.monotonic() + ENDS_S
    while where.port and (problem := _taken(where.host, where.port)):
        if time.monotonic() < give_up_s:
            time.sleep(0.1)
            continue
        others = range(where.port + NEXT, 65536)
        other = next((p for p in others if not _taken(where.host, p)), "another one")
        raise LinkSetupError(
            f"another learner listens on {where.host}:{where.port}",
            expected="a free port for the learner of this run",
            got=problem,
            fix=f"end the other run, or add link.port={other} to this command",
        )


def _taken(host: str, port: int) -> str:
    """Why nobody can listen there now; empty when somebody can, or at another machine's address."""
    try:
        probe(host, port)
    except OSError as error:
        return str(error) if error.errno == errno.EADDRINUSE else ""
    return ""


def _write(path: Path, key: bytes, mode: int) -> None:
    """Write with the final mode from the first byte on; replaces an old key whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(key + b"\n")
    fresh.rename(path)


def _read(path: Path) -> bytes:
    key = b""
    try:
        key = path.read_bytes().strip()
        zmq.curve_public(key)  # checks length and alphabet
    except OSError as error:
        raise KeyFileError(
            f"cannot read the key {path.name}",
            expected=f"{path}",
            got=error.strerror or str(error),
            fix="run `robot-rl keys`, or copy the file from the machine where that was done",
        ) from error
    except (zmq.ZMQError, ValueError) as error:
        raise KeyFileError(
            f"the key file {path.name} is damaged",
            expected=f"{KEY_CHARS} Z85 characters",
            got=f"{len(key)} bytes",
            fix="copy it again, or make new keys with `robot-rl keys`",
        ) from error
    return key
