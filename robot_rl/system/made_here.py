"""Whether something was written by this user on this machine, or came from elsewhere.

A mark is an HMAC-SHA256 under a secret that never leaves `~/.config/robot-rl/own.key`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress

from robot_rl.system.files import user_folder

SECRET = "own.key"
BYTES = 32


def mark_of(text: str) -> str:
    """The mark of a text; "" where this user's folder cannot be written."""
    secret = _secret()
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest() if secret else ""


def is_made_here(text: str, mark: object) -> bool:
    """Whether `mark` is this user's mark of the text."""
    own = mark_of(text)
    return bool(own) and isinstance(mark, str) and hmac.compare_digest(own.encode(), mark.encode())


def _secret() -> bytes:
    path = user_folder() / SECRET
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{SECRET}.{os.getpid()}")
        if not path.exists():
            with os.fdopen(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(secrets.token_bytes(BYTES))
            with suppress(FileExistsError):
                os.link(new, path)  # of two processes one is first
            new.unlink()
        secret = path.read_bytes()
        return secret if len(secret) == BYTES else b""
    return b""
