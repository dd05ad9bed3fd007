"""Keys of other people's servers: never in a configuration, and each for one host only.

A configuration, which somebody else may have written, names a key; where the key is and to which
host it may be sent is decided on this machine alone:

    ~/.config/robot-rl/api-keys/NAME     mode 600, one line: HOST KEY
    ROBOT_RL_API_KEY_NAME                an environment variable with the same line

HOST is what the server's address says between // and the next : or /.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError
from robot_rl.system.files import user_folder

FOLDER = "api-keys"
VARIABLE = "ROBOT_RL_API_KEY_"
NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
MAX_BYTES = 8192


def api_key(name: str, host: str) -> str:
    """The key that this machine calls `name`, for a server at `host`; "" for the name "".

    Raises:
        ConfigError: there is no such key, others may read its file, or it is for another host.
            What the key is, is never told.
    """
    if not name:
        return ""
    if not NAME.fullmatch(name):
        raise _refused(name, host, "a name with other characters than a-z, 0-9 and _")
    line, got = _line(name)
    bound, _, key = line.strip().partition(" ")
    key = key.strip()
    if not got and not (key and key.isascii() and key.isprintable() and " " not in key):
        got = "something that is no host and key"  # and is not shown
    if not got and bound.lower() != host.lower():
        got = "a key for another host"
    if got:
        raise _refused(name, host, got)
    return key


def _line(name: str) -> tuple[str, str]:
    """(host and key, what is wrong or "")."""
    variable = VARIABLE + name.upper()
    if variable in os.environ:
        return os.environ[variable], ""
    path = _path(name)
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return "", "a file that others may read"
            return file.read(MAX_BYTES).decode(), ""
    except (OSError, ValueError) as error:
        return "", f"no variable {variable}, and of the file: {type(error).__name__}"


def _path(name: str) -> Path:
    return user_folder() / FOLDER / name


def _refused(name: str, host: str, got: str) -> ConfigError:
    shown = name if NAME.fullmatch(name) else "NAME"
    return ConfigError(
        f"no key '{name[:40]}' for the server at {host}",
        expected=f"one line, '{host} KEY', in {_path(shown)} (mode 600) or in the variable "
        f"{VARIABLE}{shown.upper()}",
        got=got,
        fix="write that file yourself; a configuration only names it",
    )


def without_old_keys(section: Mapping[str, Any], where: str, *old: str) -> Mapping[str, Any]:
    """A section as older versions wrote it, without the fields `old`, in which a key could stand.

    Raises:
        ConfigError: one of them says something.
    """
    for name in old:
        if section.get(name):
            raise ConfigError(
                f"{where}.{name} is no longer read: a configuration does not hold keys",
                expected=f"{where}.key=NAME",
                got=f"{where}.{name}=...",
                fix=f"put the line 'HOST KEY' into {_path('NAME')}, chmod 600, and name it",
            )
    return {k: v for k, v in section.items() if k not in old}
