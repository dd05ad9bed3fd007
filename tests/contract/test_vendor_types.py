"""The vendors' message types: our fields, who comes first, what is said without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robot_rl.errors import SetupError
from robot_rl.ros import vendor, vendor_build
from tests.support.ros import HAS_ROS, NO_ROS, missing_vendor_types

needs_types = pytest.mark.skipif(bool(missing_vendor_types()), reason=missing_vendor_types())
FILES = sorted(p for p in vendor.INTERFACES.rglob("*.*") if p.suffix in (".msg", ".srv", ".action"))
PARTS = {".msg": ("",), ".srv": ("Request", "Response"), ".action": ("Goal", "Result", "Feedback")}
BASIC = {"float64": "double", "float32": "float", "bool": "boolean"}
NAMES = re.compile(r"(?:u?int\d+|float\d+|bool|string)$")


def field_type(text: str, package: str) -> str:
    """`JointTolerance[]` of a .msg file as rclpy has it: `sequence<pkg/JointTolerance>`."""
    name, _, size = text.partition("[")
    if NAMES.match(name):
        name = BASIC.get(name, name)
    elif "/" not in name:
        name = f"{package}/{name}"
    return name if not size else f"sequence<{name}>" if size == "]" else f"{name}[{size[:-1]}]"


def check_part(lines: list[str], cls: Any, package: str) -> None:
    """Fields, their order, constants and defaults of one message."""
    fields = {}
    for line in lines:
        kind, rest = line.split(" ", 1)
        constant, equals, value = rest.partition("=")
        name, _, default = rest.partition(" ")
        if equals:
            assert getattr(cls, constant) == int(value)
        else:
            fields[name] = field_type(kind, package)
        if default:
            assert getattr(cls(), name) == float(default)
    assert list(cls.get_fields_and_field_types().items()) == list(fields.items())


@needs_types
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parents[1].name}/{p.stem}{p.suffix}")
def test_an_interface_is_what_its_file_says(path: Path) -> None:
    package, kind = path.parents[1].name, path.parent.name
    cls = vendor.interface(f"{package}/{kind}/{path.stem}")
    parts = [part.split("\n") for part in f"\n{path.read_text()}".split("\n---")]
    assert len(parts) == len(PARTS[path.suffix])
    for lines, name in zip(parts, PARTS[path.suffix], strict=True):
        check_part([line for line in lines if line], getattr(cls, name) if name else cls, package)


def test_files_hold_fields_only() -> None:
    assert FILES
    for path in FILES:
        assert "#" not in path.read_text(), f"{path.name}: say it in our own documentation"
        assert path.suffix == f".{path.parent.name}"


PROGRAM = """
import sys
from robot_rl.errors import SetupError
from robot_rl.ros import vendor
try:
    sys.stdout.write(vendor.interface(sys.argv[1]).__module__)
except SetupError as error:
    sys.stdout.write(str(error))
"""


def elsewhere(name: str, cache: Path, first: Path | None = None) -> str:
    """What `interface(name)` says in a process with another cache, and `first` on its path."""
    path = os.pathsep.join(filter(None, [str(first or ""), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env=os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": path},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def place(cache: Path) -> Path:
    """The folder of our build in another cache."""
    return cache / "robot-rl" / "interfaces" / vendor.key()


def write_package(folder: Path) -> None:
    """A vendor's package with one type."""
    (folder / "msg").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "msg" / "__init__.py").write_text("class Elbow:\n    pass\n")


sourced = pytest.mark.skipif(
    bool(vendor.origin("franka_msgs")) and "interfaces" not in vendor.origin("franka_msgs"),
    reason="franka_msgs of a sourced workspace is there",
)


@sourced
def test_without_a_build_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    said = elsewhere("franka_msgs/msg/Elbow", tmp_path)
    assert "the message types of franka_msgs are missing" in said
    assert "expected:" in said
    assert "fix:      make interfaces" in said


@sourced
def test_a_damaged_build_is_named(tmp_path: Path) -> None:
    folder = place(tmp_path) / "franka_msgs"
    write_package(folder)
    (folder / f"{vendor.extension('franka_msgs')}.so").write_bytes(b"cut off")
    said = elsewhere("franka_msgs/msg/Elbow", tmp_path)
    assert "the message types of franka_msgs are damaged" in said
    assert f"rm -r {place(tmp_path)}, then make interfaces" in said


def test_a_vendors_own_package_comes_first(tmp_path: Path) -> None:
    write_package(tmp_path / "workspace" / "franka_msgs")
    write_package(place(tmp_path) / "franka_msgs")
    workspace = tmp_path / "workspace"
    assert elsewhere("franka_msgs/msg/Elbow", tmp_path, workspace) == "franka_msgs.msg"
    said = elsewhere("franka_msgs/msg/GraspEpsilon", tmp_path, workspace)
    assert "franka_msgs has no type franka_msgs/msg/GraspEpsilon" in said
    assert str(workspace / "franka_msgs") in said


@sourced
def test_a_folder_of_that_name_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "src" / "franka_msgs" / "msg").mkdir(parents=True)
    said = elsewhere("franka_msgs/msg/Elbow", tmp_path, tmp_path / "src")
    assert "the message types of franka_msgs are missing" in said


def test_an_unknown_package_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SetupError, match="did you mean 'franka_msgs'"):
        vendor.interface("frnka_msgs/msg/Elbow")


@pytest.mark.parametrize("name", ["builtin_interfaces", "builtin_interfaces/msg/Tyme"])
@pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match="package/msg/Type"):
        vendor.interface(name)


@pytest.fixture
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vendor, "origin", lambda package: "")


@pytest.mark.usefixtures("nothing_built")
def test_a_missing_compiler_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert vendor_build.main() == 2
    said = capsys.readouterr().err
    assert "a C++ compiler (no-such-compiler)" in said
    assert "sudo apt-get install -y g++" in said
    assert not vendor.built().exists()


@pytest.mark.usefixtures("nothing_built")
@pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)
def test_one_package_is_built_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        vendor_build.check_tools()
    except SetupError as error:
        pytest.skip(f"{error.expected}: {error.fix}")
    monkeypatch.setattr(vendor, "packages", lambda: ("tf2_msgs",))
    assert vendor_build.main() == 0
    assert "built tf2_msgs" in capsys.readouterr().out
    assert (place(tmp_path) / "tf2_msgs" / f"{vendor.extension('tf2_msgs')}.so").is_file()
    assert [p.name for p in place(tmp_path).parent.iterdir()] == [vendor.key()]  # nothing left over
    assert vendor_build.main() == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.usefixtures("nothing_built")
def test_a_build_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "packages", lambda: ("tf2_msgs",))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SetupError, match=r"could not be built|cannot be built"):
        vendor_build.build()
    assert not list(vendor.built().parent.glob("*/*"))


def test_the_key_changes_with_what_the_build_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vendor.key()
    monkeypatch.setenv("ROS_DISTRO", "another")
    vendor.key.cache_clear()
    try:
        assert vendor.key() != before
    finally:
        vendor.key.cache_clear()
