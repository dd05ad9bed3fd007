"""The import contract: the arrows of the design, checked in the source and at run time."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"robot_rl": ROOT, "robot_rl_sim": ROOT / "sim", "robot_rl_hardware": ROOT / "hardware"}

ROS = ("rclpy", "sensor_msgs", "geometry_msgs", "std_msgs", "std_srvs", "diagnostic_msgs")
SIMULATORS = ("mujoco", "isaacsim", "omni", "pxr")
# the composition roots: they put ports and implementations together, by late imports
ROOTS = ("cli", "train", "evaluate", "record", "lockstep", "actor", "video", "loop_bench")
ROOTS += ("operate.devices", "console_bench")
TORCH_REWARDS = (
    "reward.model",
    "reward.classifier",
    "reward.clip",
    "reward.progress",
    "reward.preference",
    "reward.scorer",
)


@dataclass(frozen=True)
class Rule:
    """Modules under `where` must not import any of `never`; `late_ok`: except inside a function."""

    where: tuple[str, ...]
    never: tuple[str, ...]
    late_ok: bool = False
    but: tuple[str, ...] = ()

    def covers(self, module: str) -> bool:
        """True when this rule speaks about `module`."""
        return _under(module, self.where) and not _under(module, self.but)


def _core(*names: str) -> tuple[str, ...]:
    return tuple(f"robot_rl.{name}" for name in names)


IMPLEMENTATIONS = ("robot_rl.ros", "robot_rl_sim", "robot_rl_hardware")
RULES = {
    "types stands alone": Rule(_core("types"), ("robot_rl",)),
    "safety knows types and numpy only": Rule(
        _core("safety"),
        (*_core("observe", "act", "store", "link", "learn", "nets", "operate", "reward", "report"),
         *_core("loop", "session", "env", "experiment", "cli"), *IMPLEMENTATIONS, "torch", "hydra",
         "gymnasium", "zmq", *ROS, *SIMULATORS),
    ),
    "observe, act, store and link know no torch but in the policy runtime": Rule(
        _core("observe", "act", "store", "link"), ("torch",), but=_core("act.policy")
    ),
    "learning knows no robot": Rule(
        _core("learn", "nets", "bases"),
        (*_core("observe", "console", "ros", "operate", "safety", "loop"), "robot_rl_sim",
         "robot_rl_hardware", *ROS, *SIMULATORS),
        but=_core("learn.bench"),
    ),
    "the console speaks link messages and reads the store": Rule(
        _core("console"), (*_core("loop", "learn", "nets", "ros", "act", "observe"), "torch", *ROS)
    ),
    "data in and out knows the store only": Rule(
        _core("data"),
        (*_core("learn", "nets", "loop", "ros", "console", "act", "observe", "operate", "safety"),
         *IMPLEMENTATIONS, "torch", *ROS, *SIMULATORS),
    ),
    "the core never imports what implements its ports": Rule(
        ("robot_rl",), IMPLEMENTATIONS, but=(*_core("ros", "experiment", *ROOTS),)
    ),
    "composition roots import implementations late": Rule(
        _core("experiment", *ROOTS), (*IMPLEMENTATIONS, "torch"), late_ok=True
    ),
    "only robot_rl.ros imports ROS": Rule(("robot_rl",), ROS, but=_core("ros")),
    "only the simulation imports a simulator": Rule(("robot_rl",), SIMULATORS),
    "tasks are pure numpy": Rule(("robot_rl_sim.tasks",), (*SIMULATORS, "torch", *ROS)),
    "only learning and the policy runtime import torch": Rule(
        ("robot_rl",), ("torch",), late_ok=True,
        but=_core("learn", "nets", "bases", "act.policy", *TORCH_REWARDS),
    ),
}  # fmt: skip


def _under(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in prefixes)


def _modules() -> Iterator[tuple[str, Path]]:
    for package, base in SOURCES.items():
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(source: str) -> Iterator[tuple[str, bool]]:
    """(imported module, late) of every import outside `if TYPE_CHECKING`; late = in a function."""

    def walk(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in children:
            if isinstance(child, ast.Import):
                yield from ((alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                yield child.module, late
                yield from ((f"{child.module}.{alias.name}", late) for alias in child.names)
            else:
                yield from walk(child, late)

    yield from walk(ast.parse(source), False)


@pytest.mark.parametrize("name", RULES)
def test_the_arrows_of_the_design_hold(name: str) -> None:
    rule = RULES[name]
    broken = [
        f"{module} imports {imported}"
        for module, path in _modules()
        if rule.covers(module)
        for imported, late in imports_of(path.read_text())
        if _under(imported, rule.never)
        and not (late and rule.late_ok)
        and not _under(imported, (module,))
    ]
    assert not broken, f"{name}:\n" + "\n".join(sorted(set(broken)))


def test_the_checker_sees_late_and_typing_only_imports() -> None:
    source = """
from typing import TYPE_CHECKING
import numpy as np
if TYPE_CHECKING:
    import torch
def f():
    from rclpy import node
"""
    found = dict(imports_of(source))
    assert found["numpy"] is False
    assert found["rclpy.node"] is True
    assert "torch" not in found


BARE = """
import importlib, sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BANNED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
BANNED = {"torch", "mujoco", "rclpy", "cv2", "av", "OpenGL", "sensor_msgs", "geometry_msgs"}
sys.meta_path.insert(0, Wall())
for module in sys.argv[1:]:
    importlib.import_module(module)
from robot_rl.cli.main import main
assert main(["--help"]) == 0
"""


def test_the_core_imports_without_ros_torch_and_mujoco() -> None:
    needs_extra = _core("ros", "learn", "nets", "bases", "act.policy", "console", "data")
    needs_extra += _core(*TORCH_REWARDS)
    needs_extra += _core("train", "evaluate", "record", "actor", "loop_bench")  # run a torch policy
    core = [m for m, _ in _modules() if _under(m, ("robot_rl",)) and not _under(m, needs_extra)]
    core += ["robot_rl.ros.graph", "robot_rl.ros.parameters", "robot_rl_sim.tasks"]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *core], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
