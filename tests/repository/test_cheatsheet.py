"""docs/cheatsheet.md: one page, whose flags and configurations exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from robot_rl.cli.main import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "cheatsheet.md").read_text()
COMMANDS = sorted(set(re.findall(r"`(robot-rl [^`]*--[^`]*)`", TEXT)))


def test_it_is_one_page() -> None:
    assert len(TEXT.splitlines()) <= 65 and len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_its_flags_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    below = {"robot": 2, "task": 2, "calibrate": 2, "camera": 2}.get(words[0], 1)
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*words[:below], "--help"]))
    assert not ended.value.code
    told = capsys.readouterr().out
    for flag in (word for word in words if word.startswith("--")):
        assert flag in told, f"{command}: no {flag}"


def test_its_profiles_exist() -> None:
    named = re.search(r"`robot=(\w+)`((?:, `\w+`)*)", TEXT)
    assert named is not None
    for name in (named[1], *re.findall(r"`(\w+)`", named[2])):
        assert (ROOT / "configs" / "robot" / f"{name}.yaml").is_file()
