"""A secret that is drawn before a comparison and told after it; the order follows from it alone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from pathlib import Path

import numpy as np

from robot_rl.errors import ConfigError
from robot_rl.run.deploy import read_plan
from robot_rl.system import plain_json

SEALED = "sealed"  # file: the secret


def order_of(secret: str, start: int, policies: int) -> list[int]:
    """In which order the policies drive from a start; follows from the secret alone."""
    digest = hashlib.sha256(f"{secret}/{start}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "big"))
    return rng.permutation(policies).tolist()


def commitment_of(secret: str) -> str:
    """What is told before the first episode: the SHA-256 of the secret, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def sealed_secret(folder: Path) -> str:
    """The secret of a folder, drawn when there is none yet. Not written as plain text.

    Raises:
        ConfigError: it does not fit the hash that was told, or the file is damaged.
    """
    path = folder / SEALED
    if not path.is_file():
        text = base64.b85encode(json.dumps({"secret": secrets.token_hex(32)}).encode())
        new = path.with_name(SEALED + ".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        new.replace(path)
    try:
        secret = str(plain_json.loads(base64.b85decode(path.read_bytes()))["secret"])
        commitment = commitment_of(secret)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the order in {path} cannot be read",
            expected="the secret that this folder was made with",
            got=f"{type(error).__name__}: {str(error)[:100]}",
            fix="restore the file, or compare again in a new folder (--out)",
        ) from error
    told = read_plan(folder).get("commitment", "")
    if told not in ("", commitment):
        raise ConfigError(
            f"the order in {path} is not the one that was drawn",
            expected=f"SHA-256 {told}",
            got=commitment,
            fix="restore the file, or compare again in a new folder (--out)",
        )
    return secret
