"""Calls that must not be in this code base (SECURITY.md), found in the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("robot_rl", "sim", "hardware", "launch", "ros2_ws", ".ci")
FILES = sorted(p for f in FOLDERS for p in (ROOT / f).rglob("*.py"))

BANNED_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "cloudpickle"}
BANNED_CALLS = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "torch.load": "unpickles; use safetensors",
    "torch.save": "pickles; use safetensors",
    "torch.hub.load": "downloads and runs code",
    "yaml.load": "can build any object; use safe_load",
    "yaml.unsafe_load": "can build any object; use safe_load",
    "os.system": "runs a shell",
    "os.popen": "runs a shell",
}
BANNED_METHODS = {
    "recv_pyobj": "unpickles from the network",
    "send_pyobj": "pickles",
    "recv_serialized": "deserialises with a callable",
    "instantiate": "Hydra's: config that names code",
}
WILDCARDS = ("tcp://*", "0.0.0.0", "tcp://[::]")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def findings(source: str, may_print: bool = False) -> Iterator[str]:
    """What is banned in a piece of source, one line each."""
    tree = ast.parse(source)
    refused = [  # a constant called WILDCARDS lists what a config refuses
        node
        for assign in ast.walk(tree)
        if isinstance(assign, ast.Assign) and _dotted(assign.targets[0]) == "WILDCARDS"
        for node in ast.walk(assign)
    ]
    for node in ast.walk(tree):
        if node in refused:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            for name in names:
                if (name or "").split(".")[0] in BANNED_MODULES:
                    yield f"{node.lineno}: import {name}"
        elif isinstance(node, ast.Call):
            yield from (f"{node.lineno}: {text}" for text in _call_findings(node, may_print))
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{node.lineno}: bare except"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in WILDCARDS:
                if word in node.value:
                    yield f"{node.lineno}: wildcard bind {word}"


def _call_findings(node: ast.Call, may_print: bool) -> Iterator[str]:
    name = _dotted(node.func)
    if name in BANNED_CALLS:
        yield f"{name}: {BANNED_CALLS[name]}"
    method = name.rpartition(".")[2]
    if method in BANNED_METHODS:
        yield f"{method}: {BANNED_METHODS[method]}"
    if name == "print" and not may_print:
        yield "print outside cli; use logging"
    if name.endswith("load") and any(k.arg == "allow_pickle" for k in node.keywords):
        yield "allow_pickle"
    for keyword in node.keywords:
        value = getattr(keyword.value, "value", None)
        if keyword.arg == "shell" and value is not False:
            yield "shell=True"
        if keyword.arg == "trust_remote_code" and value is not False:
            yield "trust_remote_code"
    if name in ("exit", "quit"):
        yield f"{name}(): return an exit code from cli instead"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_banned_call(path: Path) -> None:
    may_print = "cli" in path.parts or ".ci" in path.parts
    assert not list(findings(path.read_text(), may_print))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "import torch\ntorch.load('x')",
        "import yaml\nyaml.load(f)",
        "subprocess.run('x', shell=True)",
        "socket.recv_pyobj()",
        "socket.bind('tcp://*:5555')",
        "host = '0.0.0.0'",
        "print(1)",
        "try:\n    pass\nexcept:\n    pass",
        "np.load('x', allow_pickle=True)",
    ],
)
def test_the_checker_finds(source: str) -> None:
    assert list(findings(source))


def test_the_checker_lets_honest_code_pass() -> None:
    source = "yaml.safe_load(f)\nsubprocess.run(['x'])\nsocket.bind('tcp://127.0.0.1:*')\n"
    assert not list(findings(source))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda p: p.stem)
def test_no_config_names_code(path: Path) -> None:
    text = path.read_text()
    assert "_target_" not in text
    assert "!!python" not in text
