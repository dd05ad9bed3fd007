"""Translates sections `algo` of runs before version 0.2 into those of today.

Until then one name stood for several algorithms, by flags (`steer`, `pick`, `chunked`, `td3` with a
residual); now each has a file and a name. A flag that meant "off" is left out, and so is a key that
the algorithm never read. A feature that was on and no longer exists is refused: a run must not
quietly become another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from robot_rl.config.registry import REGISTRY, UPGRADES
from robot_rl.errors import ConfigError

ANY = object()

OFF: Mapping[str, Any] = {
    "activation": "relu",
    "backup_entropy": False,
    "bc_weight": 0.0,
    "bc_decay_updates": ANY,  # without bc_weight
    "standardize": True,
    "choice_temperature": 0.0,
    "loss": "mse",
    "task_reward": ANY,  # says which algorithm it is, as do the next ones
    "steer": ANY,
    "own_actor": False,
    "teacher": ANY,
    "takeover_penalty": 0.0,
    "actor_delay_updates": 0,
    "residual": 0.0,
    "reference_weight": 0.0,
    "edit": 0.0,
    "climbs": 0,
    "distill_rate": 0.0,
    "hinge_weight": 0.0,
    "gripper_penalty": ANY,  # of heads that have no gripper critics
    "gripper_epsilon": ANY,
    "gripper_margin": ANY,  # without residual
    "reference_dropout": ANY,  # without reference_weight
    "ramp_updates": ANY,  # without a base
    "climb_step": ANY,  # without climbs
    "climbers": ANY,
    "distill_period_updates": ANY,  # without distill_rate
    "knots": ANY,  # of a code
    "hinge_from": ANY,  # without hinge_weight
}
"""Key that was removed or moved -> the value at which it changed nothing."""


def _picks(old: Mapping[str, Any]) -> str:
    if old.get("edit"):
        return "expo"
    return "pa_rl" if old.get("climbs") or old.get("distill_rate") else "qc"


def _chunks(old: Mapping[str, Any]) -> str:
    return "policy_decorator" if old.get("residual") else "chunked"


NAMES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "hil_serl": lambda old: "hil_serl" if old.get("task_reward", True) else "rlif",
    "td3": lambda old: "resfit" if old.get("residual") else "td3",
    "chunked": _chunks,
    "noise": lambda _old: "dsrl_sac",
    "steer": lambda old: "zprl" if old.get("steer") == "latent" else "dsrl",
    "pick": _picks,
    "bc": lambda old: "opd" if old.get("teacher") else "bc",
}


def upgraded(old: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section as it is written today; a section of today is returned unchanged.

    Raises:
        ConfigError: the section asks for something that no longer exists.
    """
    name = str(old.get("name", ""))
    name = NAMES[name](old) if name in NAMES else name
    if name not in REGISTRY["algo"]:
        return old
    known = {f.name for f in dataclasses.fields(REGISTRY["algo"][name])}
    new = {k: v for k, v in old.items() if k in known or k == "name" or k not in OFF}
    for key in old.keys() - new.keys():
        if OFF[key] is not ANY and old[key] != OFF[key]:
            raise ConfigError(
                f"algo.{key} is gone",
                expected=f"algo={name} without it",
                got=f"algo.{key}={old[key]!r}",
                fix="leave it out; a run that used it needs robot-rl 0.1",
            )
    return new | {"name": name}


UPGRADES["algo"] = upgraded
