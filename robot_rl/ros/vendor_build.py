"""Build the vendors' message types that no sourced workspace has (see `robot_rl.ros.vendor`).

The generators of the ROS 2 wheels are called with the arguments that ROS's CMake macros give them,
but only those that rclpy with Fast DDS needs: C structures, their serialisation and description,
and Python. Libraries of a package find each other from the folder they are in, those of ROS's own
messages are found as rclpy's are. Beyond the wheels this needs a C++ compiler and Python's headers,
no CMake and no colcon.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from robot_rl.errors import SetupError
from robot_rl.ros import vendor

_FASTRTPS = "rosidl_typesupport_fastrtps_c"
_INTROSPECTION = "rosidl_typesupport_introspection_c"  # Fast DDS registers each type with it
_ENTRY = "rosidl_typesupport_c"  # what rclpy asks a package for
_FLAGS = ("-O1", "-fPIC", "-DNDEBUG", "-w")
_MESSAGE_LIBRARIES = (
    "rosidl_generator_c",
    "rosidl_generator_py",
    _ENTRY,
    _FASTRTPS,
    _INTROSPECTION,
)
_RUNTIME_LIBRARIES = ("rosidl_runtime_c", _ENTRY, _FASTRTPS, _INTROSPECTION, "fastcdr", "rcutils")


def build() -> list[str]:
    """Build the packages that are neither importable nor built yet; return their names.

    Raises `SetupError` when a compiler, a header or a generator is missing, or the build fails.
    """
    folder = vendor.built()
    missing = [p for p in vendor.packages() if not vendor.origin(p) and not (folder / p).is_dir()]
    if not missing:
        return []
    check_tools()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as name:
        scratch = Path(name)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # compilers run while we generate
            objects = {package: _start(package, scratch, pool) for package in missing}
            for package, futures in objects.items():
                _link(scratch / "out" / package, [future.result() for future in futures])
        for package in missing:
            _try_out(scratch / "out" / package)
            with contextlib.suppress(OSError):  # another process was faster
                (scratch / "out" / package).rename(folder / package)
    return missing


def check_tools() -> None:
    """Raise `SetupError` when this machine lacks a compiler or Python's headers."""
    python_h = Path(sysconfig.get_path("include")) / "Python.h"
    for found, what in (
        (shutil.which(_compiler("c")), f"a C compiler ({_compiler('c')})"),
        (shutil.which(_compiler("cpp")), f"a C++ compiler ({_compiler('cpp')})"),
        (python_h.is_file(), f"Python's headers ({python_h})"),
    ):
        if not found:
            raise SetupError(
                "the vendors' message types cannot be built",
                expected=what,
                got="none",
                fix=f"sudo apt-get install -y g++ python{sysconfig.get_python_version()}-dev, "
                "then make interfaces",
            )


def _compiler(suffix: str) -> str:
    variable, usual = {"c": ("CC", "gcc"), "cpp": ("CXX", "g++")}[suffix]
    return os.environ.get(variable) or usual


def _start(package: str, scratch: Path, pool: ThreadPoolExecutor) -> list[Future[Path]]:
    """Generate the code of `package` and start compiling it: object files that will be there.

    An interface is one C unit (names collide within a package), the package is one C++ unit: the
    headers cost more time than our code.
    """
    code = scratch / "code" / package
    interfaces = _generate(package, code)
    units = {
        f"{path.parent}_{path.stem}.c": _c_files(code / path.parent, path.stem)
        for path in interfaces
    }
    units |= {"entry.c": code.glob("*.ep.*.c"), "package.cpp": code.rglob("*.cpp")}
    _copy_python(code, scratch / "out" / package)
    objects = scratch / "objects" / package
    objects.mkdir(parents=True)
    flags = [*_FLAGS, f"-I{code.parent}", *_include_flags()]
    return [pool.submit(_object, objects / name, sorted(f), flags) for name, f in units.items()]


def _c_files(folder: Path, type_name: str) -> list[Path]:
    from rosidl_pycommon import convert_camel_case_to_lower_case_underscore

    stem = convert_camel_case_to_lower_case_underscore(type_name)
    return [*(folder / "detail").glob(f"{stem}__*.c"), folder / f"_{stem}_s.c"]


def _copy_python(code: Path, out: Path) -> None:
    for path in code.rglob("*.py"):
        (out / path.relative_to(code)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / path.relative_to(code))
    (out / "__init__.py").touch()


# --- generators -----------------------------------------------------------------------------------


def _generate(package: str, code: Path) -> list[Path]:
    """Write all code of a package to the folder `code`; return its interfaces, as `msg/Type.msg`.

    Raises `SetupError` when the generators are not installed.
    """
    try:
        from rosidl_adapter import convert_to_idl
        from rosidl_generator_c import generate_c
        from rosidl_generator_py import generate_py
        from rosidl_generator_type_description import generate_type_hash
        from rosidl_typesupport_c import generate_c as generate_entry
        from rosidl_typesupport_fastrtps_c import generate_typesupport_fastrtps_c
        from rosidl_typesupport_introspection_c import generate_c as generate_introspection
    except ImportError as error:
        raise SetupError(
            "the vendors' message types cannot be built",
            expected="ROS 2 with its message generators",
            got=str(error),
            fix="make setup   (a sourced ROS 2: sudo apt-get install -y ros-dev-tools)",
        ) from error
    source = vendor.INTERFACES / package
    interfaces = sorted(p.relative_to(source) for p in source.rglob("*.*"))
    shutil.copytree(source, code)
    with contextlib.redirect_stdout(io.StringIO()):  # they tell what they read and write
        for path in interfaces:
            convert_to_idl(source, package, path, code)
        generate_type_hash(_arguments("rosidl_generator_type_description", code, interfaces))
        generate_introspection(_arguments(_INTROSPECTION, code, interfaces))
        for path in [*code.glob("*/detail/*__type_support.c")]:  # generate_c has files of this name
            path.rename(path.with_name(path.name.replace("type_support", "introspection")))
        generate_c(_arguments("rosidl_generator_c", code, interfaces))
        generate_typesupport_fastrtps_c(_arguments(_FASTRTPS, code, interfaces))
        generate_entry(_arguments(_ENTRY, code, interfaces), [_FASTRTPS, _INTROSPECTION])
        generate_py(_arguments("rosidl_generator_py", code, interfaces), [_ENTRY])
    for template in ("rosidl_generator_c", _FASTRTPS, _INTROSPECTION):
        _visibility_header(template, code)
    return interfaces


def _arguments(generator: str, code: Path, interfaces: Iterable[Path]) -> str:
    """Write the arguments file of a generator; return its path."""
    path = code.parent / f"{code.name}_{generator}.json"
    arguments = {
        "package_name": code.name,
        "output_dir": str(code),
        "template_dir": str(_share(generator) / "resource"),
        "idl_tuples": [f"{code}:{p.with_suffix('.idl')}" for p in interfaces],
        "ros_interface_files": [str(code / p) for p in interfaces],
        "ros_interface_dependencies": [],
        "target_dependencies": [],
        "include_paths": [f"{share.name}:{share}" for share in _message_packages()],
    }
    if generator == "rosidl_generator_c":
        arguments["type_description_tuples"] = [
            f"{p.with_suffix('.idl')}:{code / p.with_suffix('.json')}" for p in interfaces
        ]
    path.write_text(json.dumps(arguments))
    return str(path)


def _visibility_header(generator: str, code: Path) -> None:
    name = f"{generator}__visibility_control.h"
    text = (_share(generator) / "resource" / f"{name}.in").read_text()
    text = text.replace("@PROJECT_NAME_UPPER@", code.name.upper())
    (code / "msg").mkdir(exist_ok=True)
    (code / "msg" / name).write_text(text.replace("@PROJECT_NAME@", code.name))


# --- where ROS 2 is -------------------------------------------------------------------------------


def _prefixes() -> list[Path]:
    """Folders with `share`, `include` and `lib` of ROS 2: the sourced ones, and that of wheels."""
    sourced = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    return [Path(prefix) for prefix in (*sourced, sys.prefix) if prefix]


def _share(package: str) -> Path:
    for prefix in _prefixes():
        if (prefix / "share" / package / "package.xml").is_file():
            return prefix / "share" / package
    raise SetupError(
        "the vendors' message types cannot be built",
        expected=f"a ROS 2 that has {package}",
        got=f"none in {', '.join(map(str, _prefixes()))}",
        fix="make setup   (a sourced ROS 2: sudo apt-get install -y ros-dev-tools)",
    )


def _message_packages() -> list[Path]:
    """`share` folders of all packages that define messages."""
    found = (p for prefix in _prefixes() for p in (prefix / "share").glob("*/msg/*.json"))
    return sorted({path.parent.parent for path in found})


def _include_flags() -> list[str]:
    import numpy as np

    folders = [sysconfig.get_path("include"), np.get_include()]
    for prefix in _prefixes():
        folders += [str(prefix / "include"), *map(str, (prefix / "include").glob("*"))]
    return [flag for folder in folders for flag in ("-isystem", folder)]


# --- compilers ------------------------------------------------------------------------------------


def _object(unit: Path, files: Sequence[Path], flags: Sequence[str]) -> Path:
    """Compile `files` as one unit; returns the object file."""
    unit.write_text("".join(f'#include "{path}"\n' for path in files))
    _run([_compiler(unit.suffix[1:]), *flags, "-c", str(unit), "-o", f"{unit}.o"])
    return Path(f"{unit}.o")


def _link(out: Path, objects: Iterable[Path]) -> None:
    """Link one library with all code of a package, and the names under which ROS looks for it.

    rclpy imports the extension, and the type supports are opened by the name of their library: if
    the extension has loaded these, no search path has to name this folder.
    """
    libraries = [f"{p.name}__{kind}" for p in _message_packages() for kind in _MESSAGE_LIBRARIES]
    folders = [prefix / "lib" for prefix in _prefixes()]
    known = {path.stem.removeprefix("lib") for lib in folders for path in lib.glob("lib*.so")}
    code, *supports = (
        f"{out.name}__{k}" for k in ("rosidl_generator_c", _FASTRTPS, _INTROSPECTION)
    )
    _link_one(out / f"lib{code}.so", [
        *map(str, objects), "-Wl,--as-needed", *(f"-L{folder}" for folder in folders),
        *(f"-l{name}" for name in (*libraries, *_RUNTIME_LIBRARIES) if name in known),
    ])  # fmt: skip
    for name in supports:
        _link_one(out / f"lib{name}.so", [f"-l{code}"])
    _link_one(out / f"{vendor.extension(out.name)}.so", [f"-l{name}" for name in supports])


def _link_one(library: Path, inputs: Iterable[str]) -> None:
    soname = f"-Wl,-soname,{library.name},-rpath,$ORIGIN,--no-as-needed"
    _run([_compiler("cpp"), "-shared", "-o", str(library), soname, f"-L{library.parent}", *inputs])


def _try_out(out: Path) -> None:
    """Import the extension in a process of its own: every symbol must be there."""
    program = (
        "import importlib, sys; sys.path.append(sys.argv[1]); importlib.import_module(sys.argv[2])"
    )
    _run(
        [sys.executable, "-c", program, str(out.parent), f"{out.name}.{vendor.extension(out.name)}"]
    )


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(
            "the vendors' message types could not be built",
            expected=f"{Path(command[0]).name} succeeds",
            got="\n".join(done.stderr.strip().splitlines()[-5:]),
            fix="compiler and headers must fit this Python and ROS 2; for the pinned ROS 2 wheels: "
            "make clean setup",
        )


def main() -> int:
    """Build what is missing and say so; the exit code is 2 when that fails (`make interfaces`)."""
    start_s = time.monotonic()
    try:
        names = build()
    except SetupError as error:
        sys.stderr.write(f"interfaces: {error}\n")
        return 2
    took_s = time.monotonic() - start_s
    sys.stdout.write(
        f"interfaces: built {', '.join(names)} in {took_s:.0f} s: {vendor.built()}\n"
        if names
        else "interfaces: up to date\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
