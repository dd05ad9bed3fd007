"""Message types of robot vendors, wherever they come from: a sourced workspace, or our own build.

A driver speaks the types of its vendor (`franka_msgs/action/Grasp`), and the ROS 2 wheels hold only
ROS's own. The folder `interfaces` holds the fields of the few that we use; `vendor_build` makes
Python packages of them (`make interfaces`), which are kept in the user's cache. A sourced workspace
always wins: its packages come first on `sys.path`, and ours are the last there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

from robot_rl.errors import SetupError, did_you_mean

INTERFACES = Path(__file__).parent / "interfaces"
FIX = "make interfaces   (without a Makefile: python -m robot_rl.ros.vendor_build)"
_BINARY = ("rosidl_generator_py", "rosidl_typesupport_fastrtps_c", "numpy")
"""Distributions whose other version may mean another binary interface."""


def packages() -> tuple[str, ...]:
    """Names of the vendors' packages of which we have interfaces."""
    return tuple(sorted(p.name for p in INTERFACES.iterdir() if p.is_dir()))


def interface(name: str) -> Any:
    """Return the class of `package/msg|srv|action/Type`, a vendor's or ROS's own.

    Raises `SetupError` when the package is neither sourced nor built, or lacks this type.
    """
    package, _, rest = name.partition("/")
    kind, _, type_name = rest.partition("/")
    load(package)
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), type_name)
    except (ImportError, AttributeError) as error:
        raise SetupError(
            f"the ROS 2 package {package} has no type {name}",
            expected="package/msg/Type (or srv, action) that its version of the package defines",
            got=f"{error} in {origin(package)}",
            fix=f"correct the name, or source a workspace with another version of {package}",
        ) from error


def load(package: str) -> None:
    """Make `import package.msg` (or `.srv`, `.action`) work in this process.

    Raises `SetupError` when the package is neither sourced nor built, or the build is damaged.
    """
    found = origin(package)
    if found and package not in packages():
        return  # ROS's own: nothing of ours is looked for
    folder = built()
    if found not in ("", str(folder / package / "__init__.py")):
        return
    if package not in packages():
        raise SetupError(
            f"the ROS 2 package {package} is missing",
            expected="a package of ROS 2, of the sourced workspace, or one whose fields we have",
            got=f"{package}; {did_you_mean(package, packages())}",
            fix=f"source the workspace that has {package}",
        )
    if not (folder / package).is_dir():
        raise SetupError(
            f"the message types of {package} are missing",
            expected=f"a sourced workspace that has {package}, or our build of it",
            got=f"neither (no {folder / package})",
            fix=FIX,
        )
    if str(folder) not in sys.path:  # the last place, so that a vendor's own package comes first
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    try:  # rclpy would only say that the type has no type support
        importlib.import_module(f"{package}.{extension(package)}")
    except ImportError as error:
        raise SetupError(
            f"the message types of {package} are damaged",
            expected=f"our build in {folder}",
            got=str(error),
            fix=f"rm -r {folder}, then {FIX}",
        ) from error


def extension(package: str) -> str:
    """Name of the compiled module in which rclpy looks for the types of `package`."""
    return f"{package}_s__rosidl_typesupport_c"


def built() -> Path:
    """The folder that holds (or will hold) our build for this Python, this ROS 2, these fields."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "robot-rl" / "interfaces" / key()


@functools.cache
def key() -> str:
    """Digits that change with the fields, the recipe, Python, and the ROS 2 it is built for."""
    digest = hashlib.sha256()
    for path in (Path(__file__).with_name("vendor_build.py"), *_files()):
        digest.update(f"{path.relative_to(INTERFACES.parent)}\0".encode() + path.read_bytes())
    machine = (sysconfig.get_config_var("SOABI"), platform.machine(), os.environ.get("ROS_DISTRO"))
    digest.update(repr((machine, [_version(name) for name in _BINARY])).encode())
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    return sorted(path for path in INTERFACES.rglob("*") if path.is_file())


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def origin(package: str) -> str:
    """The file of an importable package; empty for none, and for a mere folder of that name."""
    spec = importlib.util.find_spec(package)
    return (spec.origin or "") if spec else ""
