"""Some of the parts of a benchmark, named with commas between them: `--only key,video`."""

from __future__ import annotations

from collections.abc import Iterable

from robot_rl.errors import ConfigError, did_you_mean


def some_of(text: str, known: Iterable[str], what: str) -> list[str]:
    """The names in `text`, in its order; all of `known` when there is none. what: "part", "arm".

    Raises:
        ConfigError: a name that is not known.
    """
    options = list(known)
    names = [word.strip() for word in text.split(",") if word.strip()] or options
    for name in names:
        if name not in options:
            raise ConfigError(
                f"this benchmark has no {what} '{name}'",
                expected=f"some of {','.join(options)}",
                got=name,
                fix=did_you_mean(name, options),
            )
    return names
