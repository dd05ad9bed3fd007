"""Values change in a person's YAML file; comments, order and every other key stay."""

from __future__ import annotations

import pytest
import yaml

from robot_rl.config.edit import with_values
from robot_rl.errors import ConfigError

VALUES = {"crop": [10, 20, 300, 200], "width": 640}
WRIST = ("cameras", "wrist")
INSIDE = "{crop: [10, 20, 300, 200], width: 640}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "cameras:\n  wrist:\n    crop: [10, 20, 300, 200]\n    width: 640\n"),
        ("# mine\n", "# mine\ncameras:\n  wrist:\n    crop: [10, 20, 300, 200]\n    width: 640\n"),
        (
            "name: a # why\n# last words",
            "name: a # why\n# last words\n",  # the new lines stand behind `name`
        ),
        (
            "cameras: {} # of the task\nz: 1\n",
            f"cameras: {{ wrist: {INSIDE} }} # of the task\nz: 1\n",
        ),
        ("cameras:\nz: 1\n", f"cameras: {{wrist: {INSIDE}}}\nz: 1\n"),
        (
            "cameras: { front: { topic: /a } } # two\n",
            f"cameras: {{ front: {{ topic: /a }}, wrist: {INSIDE} }} # two\n",
        ),
        (
            "cameras:\n  wrist: { crop: [1, 2, 3, 4], topic: /a } # the hand's\n",
            "cameras:\n  wrist: { crop: [10, 20, 300, 200], topic: /a, width: 640 } # the hand's\n",
        ),
        (
            "cameras:\n  wrist: # the hand's\n    topic: /a # as the driver says\n\n# next\nz: 1\n",
            "cameras:\n  wrist: # the hand's\n    topic: /a # as the driver says\n"
            "    crop: [10, 20, 300, 200]\n    width: 640\n\n# next\nz: 1\n",
        ),
        (
            "cameras:\n  wrist:\n    crop:\n      - 1\n      - 2\n      - 3\n      - 4\n    # end\n"
            "    width: 1 # px\n",
            "cameras:\n  wrist:\n    crop:\n      [10, 20, 300, 200]\n    # end\n"
            "    width: 640 # px\n",
        ),
        (
            "cameras:\n    front:\n        note: |\n            two\n            lines\nz: 1\n",
            "cameras:\n    front:\n        note: |\n            two\n            lines\n"
            "    wrist:\n      crop: [10, 20, 300, 200]\n      width: 640\nz: 1\n",
        ),
        (
            "cameras: {wrist: {crop: null}}\nx: ${seed}",
            f"cameras: {{wrist: {INSIDE}}}\nx: ${{seed}}",
        ),
    ],
)  # fmt: skip
def test_only_the_values_change(before: str, after: str) -> None:
    changed = with_values(before, WRIST, VALUES)
    if "last words" in before:
        assert changed.startswith("name: a # why\ncameras:\n") and "# last words" in changed
    else:
        assert changed == after
    read = yaml.safe_load(changed)
    assert read["cameras"]["wrist"].items() >= VALUES.items()
    assert with_values(changed, WRIST, VALUES) == changed


@pytest.mark.parametrize(
    "text",
    [
        "cameras: 3\n",
        "- a\n",
        "cameras: [\n",
        "common: &c {crop: [1, 2, 3, 4]}\ncameras: {wrist: *c}\n",
        "cameras:\n  wrist:\n    crop:\n      - 1 # left\n      - 2\n      - 3\n      - 4\n",
    ],
)
def test_a_file_that_only_a_person_can_change_is_refused_with_the_values(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed by a program") as refused:
        with_values(text, WRIST, VALUES)
    assert "cameras.wrist.crop: [10, 20, 300, 200]" in refused.value.fix
