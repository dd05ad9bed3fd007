"""The import contract: the order of the rooms, checked in the source and at run time.

A room is a package folder of `robot_rl` (or the simulator's, or the drivers'), or a module that is
loose at the top. An arrow is any import: at the top, inside a function, or for types only.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"robot_rl": ROOT, "robot_rl_sim": ROOT / "sim", "robot_rl_hardware": ROOT / "hardware"}

ORDER = (
    *("errors", "types", "geometry", "spec", "ports"),  # the vocabulary
    "system",
    "config",
    "robots",
    "tasks",
    "observe",
    "calibrate",
    "safety",
    "store",
    "link",
    "data",
    "nets",
    "policy",
    "reward",
    "learn",
    "operate",
    "control",
    "report",
    "console",
    *("robot_rl_sim", "robot_rl_hardware"),  # implement ports
    "ros",
    "run",
    "studio",
    "bench",
    "cli",
)
"""From the room that everybody knows to the one that nobody does: arrows point to the left."""

MOST = 38  # package folders and loose modules of `robot_rl`

ROS = (
    *("rclpy", "rosidl_adapter", "sensor_msgs", "geometry_msgs", "std_msgs", "std_srvs"),
    *("diagnostic_msgs", "action_msgs", "trajectory_msgs"),
    *(p.name for p in sorted((ROOT / "robot_rl" / "ros" / "interfaces").iterdir())),
)
SIMULATORS = ("mujoco", "mink", "isaacsim", "omni", "pxr")
TORCH_FILES = (  # that import torch at the top
    *("learn", "nets", "policy", "bench"),
    *("reward.model", "reward.scorer", "reward.success", "reward.progress", "reward.preference"),
    "reward.compatible_train",
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
    "safety knows types, ports, robots and numpy only": Rule(
        _core("safety"),
        (*_core(*(room for room in ORDER
                  if room not in ("errors", "types", "geometry", "ports", "config", "robots",
                                  "safety")
                  and not room.startswith("robot_rl_"))),
         *IMPLEMENTATIONS, "torch", "hydra", "gymnasium", "zmq", *ROS, *SIMULATORS),
    ),
    "observe, control, store and link know no torch": Rule(
        _core("observe", "control", "store", "link", "safety", "tasks"), ("torch",)
    ),
    "learning knows no robot": Rule(
        _core("learn", "nets", "policy"),
        (*_core("observe", "console", "ros", "operate", "safety", "control", "tasks"),
         "robot_rl_sim", "robot_rl_hardware", *ROS, *SIMULATORS),
    ),
    "the console speaks link messages and reads the store": Rule(
        _core("console"),
        (*_core("control", "learn", "nets", "ros", "policy", "observe"), "torch", *ROS),
    ),
    "data in and out knows the store only": Rule(
        _core("data"),
        (*_core("learn", "nets", "control", "ros", "console", "policy", "observe", "operate",
                "safety"), *IMPLEMENTATIONS, "torch", *ROS, *SIMULATORS),
    ),
    "the core never imports what implements its ports": Rule(
        ("robot_rl",), IMPLEMENTATIONS, but=_core("ros", "run", "bench", "cli")
    ),
    "who puts ports and implementations together imports the latter late": Rule(
        _core("run", "cli"), ("robot_rl_sim", "robot_rl_hardware"), late_ok=True
    ),
    "only a run, a benchmark and the command line see an Experiment": Rule(
        ("robot_rl", "robot_rl_sim", "robot_rl_hardware"), ("robot_rl.run",),
        but=_core("run", "studio", "bench", "cli"),
    ),
    "nobody below knows the report": Rule(
        ("robot_rl", "robot_rl_sim", "robot_rl_hardware"), ("robot_rl.report",),
        but=_core("report", "run", "bench", "cli"),
    ),
    "only robot_rl.ros imports ROS": Rule(("robot_rl",), ROS, but=_core("ros")),
    "only the simulation imports a simulator": Rule(("robot_rl",), SIMULATORS),
    "only learning and the policy import torch": Rule(
        ("robot_rl",), ("torch",), late_ok=True, but=_core(*TORCH_FILES)
    ),
}  # fmt: skip


def _under(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in prefixes)


@cache
def modules() -> Mapping[str, Path]:
    """Name -> file of everything of ours."""
    found = {}
    for package, base in SOURCES.items():
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(source: str) -> Iterator[tuple[str, bool]]:
    """(imported name, late) of every import; `from a import b` is a.b. late = inside a function, or
    for types only."""

    def walk(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        late = late or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                yield from ((f"{child.module}.{alias.name}", late) for alias in child.names)
            else:
                yield from walk(child, late)

    yield from walk(ast.parse(source), False)


@cache
def arrows() -> Mapping[str, frozenset[str]]:
    """Module of ours -> those that it imports."""
    found = {}
    for module, path in modules().items():
        names = {name for name, _ in imports_of(path.read_text())}
        mine = {n if n in modules() else n.rpartition(".")[0] for n in names}
        found[module] = frozenset(mine & modules().keys() - {module, "robot_rl"})
    return found


def room(module: str) -> str:
    """The room of a module; robot_rl itself (its version) is none."""
    parts = module.split(".")
    return parts[0] if parts[0] != "robot_rl" or len(parts) == 1 else parts[1]


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Groups that reach each other (Tarjan, 1972); a circle has two members or more."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


@pytest.mark.parametrize("name", RULES)
def test_the_rules_of_the_design_hold(name: str) -> None:
    rule = RULES[name]
    broken = [
        f"{module} imports {imported}"
        for module, path in modules().items()
        if rule.covers(module)
        for imported, late in imports_of(path.read_text())
        if _under(imported, rule.never)
        and not (late and rule.late_ok)
        and not _under(imported, (module,))
    ]
    assert not broken, f"{name}:\n" + "\n".join(sorted(set(broken)))


def test_arrows_between_rooms_run_one_way() -> None:
    place = {name: i for i, name in enumerate(ORDER)}
    unknown = {room(m) for m in modules()} - place.keys() - {"robot_rl"}
    assert not unknown, f"rooms without a place in ORDER: {sorted(unknown)}"
    wrong = [
        f"{module} -> {other}"
        for module, others in arrows().items()
        for other in others
        if place[room(other)] > place[room(module)]
    ]
    assert not wrong, "against the order:\n" + "\n".join(sorted(wrong))


def test_there_is_no_circle_and_few_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    inside = [m for m in modules() if m.startswith("robot_rl.")]
    folders = {m for m in inside if modules()[m].name == "__init__.py"}
    loose = {m for m in inside if m.count(".") == 1} - folders
    between = {(room(a), room(b)) for a, others in arrows().items() for b in others}
    between = {(a, b) for a, b in between if a != b}
    with capsys.disabled():
        text = f"{len(folders)} folders, {len(loose)} loose modules, {len(between)} arrows"
        sys.stdout.write(f"\n{text} between rooms, {len(circles(arrows()))} circles\n")
    assert circles(arrows()) == []
    assert loose == {f"robot_rl.{name}" for name in ORDER[:5]}
    assert len(folders) + len(loose) <= MOST


def test_the_checker_sees_late_and_typing_only_imports_and_circles() -> None:
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
    assert found["torch"] is found["rclpy.node"] is True
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("a")}
    assert circles(graph) == [["b", "c"]]


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
    needs_extra = _core("ros", "console", "data", "studio", *TORCH_FILES)
    needs_extra += _core("run.train", "run.evaluate", "run.record", "run.serve_policy")
    needs_extra += _core("run.check_base", "run.generate")
    needs_extra += _core("run.actor", "run.sim_actor", "run.learner", "run.console", "run.nodes")
    core = [m for m in modules() if _under(m, ("robot_rl",)) and not _under(m, needs_extra)]
    core += ["robot_rl.ros.graph", "robot_rl.ros.parameters", "robot_rl.ros.input_config"]
    core += ["robot_rl.ros.vendor", "robot_rl.ros.vendor_build"]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *core], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
