"""Targets: configurations, keys and certificates of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from robot_rl.errors import ConfigError, LinkError, SetupError, SpecError
from tests.fuzz.target import parts_into, target

# -- configuration ---------------------------------------------------------------------------------


@target("yaml", "config.yaml_file.parse_yaml", ConfigError, yaml.YAMLError, weight=0.15,
        longest=2048)  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.config.yaml_file import parse_yaml

    return lambda data: parse_yaml(data, "file")


@target("config_section", "config.registry.resolve", ConfigError, weight=0.1, tree="json", skip=2)
def _(_folder: Path) -> Any:
    import importlib

    from robot_rl.config.registry import PROVIDERS, REGISTRY, resolve

    for modules in PROVIDERS.values():
        for module in modules:
            importlib.import_module(module)
    names = sorted((group, name) for group, known in REGISTRY.items() for name in known)

    def run(data: bytes) -> None:
        group, name = names[int.from_bytes(data[:2], "little") % len(names)]
        try:
            values = json.loads(data[2:])
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict):
            resolve(group, {"name": name, **{k: v for k, v in values.items() if k != "name"}})

    return run


@target("run_config", "run.experiment.Experiment.from_dict", ConfigError, SetupError,
        weight=0.03, longest=32_768, tree="json")  # fmt: skip
def _(_folder: Path) -> Any:
    import importlib

    from robot_rl.config.registry import PROVIDERS
    from robot_rl.config.run_folder import config_hash
    from robot_rl.run.experiment import Experiment

    for module in (name for names in PROVIDERS.values() for name in names):
        importlib.import_module(module)

    def run(data: bytes) -> None:
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict):
            config_hash(values)
            experiment = Experiment.from_dict(values)
            for section in ("task", "reward", "algo", "learner", "link"):
                experiment.section(section)

    return run


@target("config_edit", "config.edit.with_values", ConfigError, weight=0.05, longest=1024)
def _(_folder: Path) -> Any:
    from robot_rl.config.edit import with_values

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        changed = with_values(text, ("cameras", "wrist"), {"width": 640})
        assert yaml.safe_load(changed)["cameras"]["wrist"]["width"] == 640

    return run


@target("spec", "spec.spec_from_dict", SpecError, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.spec import Spec, spec_from_dict

    def run(data: bytes) -> None:
        try:
            found = spec_from_dict(json.loads(data))
        except (ValueError, RecursionError):
            return
        assert isinstance(found, Spec)
        assert spec_from_dict(found.as_dict()) == found
        assert found.hash and found.cameras is not None and found.state_slices is not None

    return run


@target("rest_position", "operate.calibration.load_rest", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.operate import calibration

    write = parts_into(folder / "devices", ("pad.yaml",))

    def run(data: bytes) -> None:
        write(data)
        with patch.object(calibration, "user_folder", lambda: folder):
            calibration.load_rest("pad", ("X", "-Y", "Z", "RX", "RY", "RZ"))

    return run


@target("leader_map", "robot_rl_hardware.leader_map.load", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.operate import calibration
    from robot_rl_hardware import leader_map

    write = parts_into(folder / "devices", ("gello.yaml",))

    def run(data: bytes) -> None:
        write(data)
        with patch.object(calibration, "user_folder", lambda: folder):
            leader_map.load("gello", 3)

    return run


@target("task_poses", "run.task_file.from_poses", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.run.task_file import from_poses

    write = parts_into(folder, ("poses.yaml",))

    def run(data: bytes) -> None:
        write(data)
        from_poses(folder / "poses.yaml")

    return run


@target("prompt", "reward.vlm.questions.load_prompts", ConfigError, weight=0.05, longest=2048)
def _(folder: Path) -> Any:
    from robot_rl.reward.vlm.questions import load_prompts

    write = parts_into(folder, ("success.yaml",))

    def run(data: bytes) -> None:
        write(data)
        load_prompts(folder)

    return run


# -- keys and certificates -------------------------------------------------------------------------


@target("key_folder", "link.auth.load_keys", LinkError, weight=0.2, longest=256)
def _(folder: Path) -> Any:
    from robot_rl.link.auth import load_keys

    write = parts_into(folder, ("actor.secret", "actor.public", "learner.public"))
    (folder / "actor.secret").touch(mode=0o600)

    def run(data: bytes) -> None:
        write(data)
        load_keys(folder, "actor")

    return run


@target("certificate", "console.certificate.load", ConfigError, weight=0.1)
def _(folder: Path) -> Any:
    from robot_rl.console.certificate import CA, KEY, PAGE, load

    write = parts_into(folder, (CA, PAGE, KEY))
    (folder / KEY).touch(mode=0o600)

    def run(data: bytes) -> None:
        write(data)
        load(folder)

    return run
