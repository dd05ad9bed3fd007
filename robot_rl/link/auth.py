"""CURVE keys as files, and who may speak: a folder of keys is the allow-list.

`<name>.public` and `<name>.secret` hold one Z85 key each (40 characters). The part of the name
before the first "-" is the role, so a fleet has `actor-left` and `actor-right`. A machine needs its
own secret and the public keys of those it talks to; whoever has no `.public` file in the learner's
folder is turned away before a byte of theirs reaches a decoder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator

from robot_rl.errors import LinkError
from robot_rl.link.config import LinkConfig

NAMES = ("learner", "actor")
KEY_CHARS = 40  # Z85 of 32 bytes
ZAP_DOMAIN = "robot-rl"


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
        raise LinkError(
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
    """Keys from the configured folder, or per-run keys for a link that stays on this machine.

    names: of all key pairs of the run, which are made together.

    Raises:
        LinkError: the link leaves this machine and no key folder is configured, or a key is bad.
    """
    if config.key_folder is not None:
        return load_keys(Path(config.key_folder).expanduser(), name)
    require_key_folder(config)
    return load_keys(ensure_keys(Path(run_folder) / "keys", names), name)


def require_key_folder(config: LinkConfig) -> None:
    """Raise `LinkError` when the link would leave this machine without keys made for that."""
    if config.key_folder is None and not config.is_loopback:
        raise LinkError(
            "the link would leave this machine without its own keys",
            expected="link.key_folder, or a loopback host",
            got=f"host {config.host}, no key folder",
            fix="run `robot-rl keys FOLDER`, copy the files, set link.key_folder=FOLDER",
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
        raise LinkError(
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


def listen(socket: zmq.Socket, where: LinkConfig, keys: Keys, option: str) -> int:
    """Bind for peers that speak CURVE and pass a `guard`, and return the port.

    option: how a person sets the port, for the error.

    Raises:
        LinkError: the address is taken, or is not one of this machine.
    """
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
    socket.zap_domain = ZAP_DOMAIN.encode()
    try:
        socket.bind(where.endpoint if where.port else f"tcp://{where.host}:*")
    except zmq.ZMQError as error:
        in_use = error.errno == zmq.EADDRINUSE
        raise LinkError(
            f"the {keys.name} cannot listen on {where.host}:{where.port}",
            expected="a free port on an address of this machine",
            got="the port is in use" if in_use else str(error),
            fix=f"end the other server, or set {option}"
            if in_use
            else "set the host to an IP address of this machine",
        ) from error
    return int(socket.get_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])


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
        raise LinkError(
            f"cannot read the key {path.name}",
            expected=f"{path}",
            got=error.strerror or str(error),
            fix="run `robot-rl keys`, or copy the file from the machine where that was done",
        ) from error
    except (zmq.ZMQError, ValueError) as error:
        raise LinkError(
            f"the key file {path.name} is damaged",
            expected=f"{KEY_CHARS} Z85 characters",
            got=f"{len(key)} bytes",
            fix="copy it again, or make new keys with `robot-rl keys`",
        ) from error
    return key
