"""Launch files against recording doubles of launch and launch_ros, and the ament package."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from robot_rl.cli import node
from robot_rl.errors import ConfigError, SetupError
from robot_rl.ros import sole
from robot_rl.ros.enclaves import enclave_of
from robot_rl.ros.graph import EXIT_SETUP, KINDS, PROFILE_VARIABLE
from robot_rl.ros.supervise import MAX_RESTARTS, node_environment
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of, system_of
from robot_rl.run.launch import launch_dir, main, plan

REPO = Path(__file__).resolve().parents[2]
BRINGUP = REPO / "ros2_ws" / "src" / "robot_rl_bringup"
REAL = ["ros=real", "operator=none"]


class Recorded:
    """Stands in for any launch action; keeps what it was made from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class Configuration(Recorded):
    """`LaunchConfiguration`: looks the value up in the recording context (a dict)."""

    def perform(self, context: dict[str, str]) -> str:
        return context[self.args[0]]


class Node(Recorded):
    """`launch_ros.actions.Node`."""


class ExecuteProcess(Recorded):
    """`launch.actions.ExecuteProcess`."""


class Shutdown(Recorded):
    """`launch.actions.Shutdown`."""


@pytest.fixture(autouse=True)
def launch_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small recording doubles of `launch` and `launch_ros`."""

    def module(name: str, **names: Any) -> None:
        fake = types.ModuleType(name)
        vars(fake).update(names)
        monkeypatch.setitem(sys.modules, name, fake)

    actions = ("DeclareLaunchArgument", "EmitEvent", "LogInfo", "OpaqueFunction")
    module("launch", LaunchDescription=Recorded)
    module(
        "launch.actions",
        ExecuteProcess=ExecuteProcess,
        Shutdown=Shutdown,
        **dict.fromkeys(actions, Recorded),
    )
    module("launch.events", matches_action=Recorded)
    module("launch.events.process", ShutdownProcess=Recorded)
    module("launch.substitutions", LaunchConfiguration=Configuration)
    module("launch_ros")
    module("launch_ros.actions", Node=Node)


def of_run() -> dict[str, Any]:
    """The names in `launch/of_run.py`."""
    return runpy.run_path(str(REPO / "launch" / "of_run.py"))


def launched(name: str, given: dict[str, str]) -> dict[str, Recorded]:
    """Execute a launch file as launch would, in this process; returns its processes by name."""
    names = runpy.run_path(str(REPO / "launch" / f"{name}.launch.py"))
    names["of_run"].__globals__["ask"] = plan
    (entries,) = names["generate_launch_description"]().args
    declared = {e.args[0]: e.kwargs["default_value"] for e in entries if e.args}
    assert set(given) <= set(declared)
    _, *processes = entries[-1].kwargs["function"](declared | given)
    return {p.kwargs.get("exec_name", p.kwargs["name"]): p for p in processes}


def saved(folder: Path, *words: str) -> Experiment:
    """An experiment that has its run folder."""
    experiment = Experiment.compose([*words, f"run_dir={folder}", "runtime=ros"])
    experiment.save()
    return experiment


@pytest.mark.parametrize(
    ("name", "words", "given"),
    [
        ("sim", ["experiment=peg_insert"], {}),
        ("sim", ["experiment=peg_insert_easy_pixels", "operator=console"], {}),
        (
            "sim",
            ["experiment=peg_insert"],
            {"real_time_factor": "2", "namespace": "left", "with_view": "true"},
        ),
        ("real", [*REAL, "ros.remaps={joint_states: /fr3/joint_states}"], {"with_actor": "False"}),
        ("real", [*REAL, "robot=ur5e"], {"stop_service": "crisp/stop", "double": "True"}),
    ],
)
def test_launch_files_start_exactly_the_processes_of_the_run(
    tmp_path: Path, name: str, words: list[str], given: dict[str, str]
) -> None:
    run_dir = tmp_path / "run"
    saved(run_dir, *words)
    processes = launched(name, given | {"run_dir": str(run_dir)})
    words = [*words, f"run_dir={run_dir}", "runtime=ros"]
    expected = system_of(
        Experiment.compose([*words, *(f"ros.{k}={v.lower()}" for k, v in given.items())])
    )
    assert list(processes) == [spec.name for spec in expected]
    assert ("console" in processes) == ("operator=console" in words)
    for process, spec in zip(processes.values(), expected, strict=True):
        said = process.kwargs
        assert said["additional_env"][PROFILE_VARIABLE].endswith(".xml")
        assert said["additional_env"]["ROBOT_RL_SUPERVISOR_PID"] == str(os.getppid())
        assert (said["prefix"] or "").endswith(str(spec.nice or ""))
        if spec.arguments is not None:
            assert isinstance(process, ExecuteProcess)
            assert said["cmd"][:5] == [sys.executable, "-P", "-m", spec.module, str(run_dir)]
            continue
        assert isinstance(process, Node)
        assert said["arguments"] == ["-P", "-m", spec.module, spec.kind]
        assert said["executable"] == sys.executable
        (parameters,) = (yaml.safe_load(Path(file).read_text()) for file in said["parameters"])
        assert parameters == {"/**": {"ros__parameters": dict(spec.params)}}
        assert said["namespace"] == spec.namespace
        assert dict(said["remappings"]) == dict(spec.remaps)
        assert said["exec_name"] == said["name"] == spec.name


def test_several_arms_are_launched_together_and_end_together(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    saved(run_dir, "experiment=reach", "actors=left,right", "operator=none")
    asked = plan("sim", {"run_dir": str(run_dir)})
    labels = [process["label"] for process in asked["processes"]]
    assert labels[0] == "learner" and {"left-gate", "right-gate"} < set(labels)
    nodes = [process for process in asked["processes"] if process["namespace"]]
    clocks = {node["namespace"]: node["remaps"].get("/clock") for node in nodes}
    assert clocks == {"left": "/left/clock", "right": "/right/clock"}
    folders = {
        yaml.safe_load(Path(p["parameters"]).read_text())["/**"]["ros__parameters"].get("run_dir")
        for p in nodes
        if p["label"].startswith("left")
    }
    assert folders - {None} == {str(run_dir.resolve() / "arms" / "left")}
    actors = [p for p in asked["processes"] if p["finishes"]]
    first, last = (of_run()["Ending"](process, asked) for process in actors)
    ended = types.SimpleNamespace(returncode=0, action=None)
    going = types.SimpleNamespace(is_shutdown=False)
    assert not any(isinstance(a, Shutdown) for a in first(ended, going))
    assert any(isinstance(a, Shutdown) for a in last(ended, going))


def test_nodes_of_a_run_with_keys_are_launched_in_their_enclaves(tmp_path: Path) -> None:
    run_dir, keystore = tmp_path / "run", tmp_path / "keystore"
    for spec in graph_of(Experiment.compose(["experiment=reach", "runtime=ros"])):
        place = keystore / "enclaves" / enclave_of(spec).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "permissions.p7s").touch()
    saved(run_dir, "experiment=reach", f"ros.keystore={keystore}")
    processes = launched("sim", {"run_dir": str(run_dir)})
    nodes = [p.kwargs for p in processes.values() if isinstance(p, Node)]
    assert nodes
    for said in nodes:
        assert said["additional_env"]["ROS_SECURITY_KEYSTORE"] == str(keystore)
        flag, name = said["ros_arguments"]
        assert flag == "--enclave" and (keystore / "enclaves" / name.lstrip("/")).is_dir()


def test_a_node_that_is_started_by_hand_has_the_environment_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    saved(tmp_path / "run", "experiment=reach")
    arguments = node._arguments("gate", tmp_path / "run")
    assert "__node:=gate" in arguments
    spec = next(s for s in graph_of(Experiment.load(tmp_path / "run")) if s.name == "gate")
    needed = node_environment(spec, {})
    assert needed.items() <= os.environ.items() and os.environ[PROFILE_VARIABLE].endswith(".xml")


def test_a_run_that_is_at_work_is_not_launched_a_second_time(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    saved(run_dir, "experiment=reach")
    other = "import time; from robot_rl.run.at_work import alone_in; from pathlib import Path\n"
    other += f"with alone_in(Path({str(run_dir)!r})): print('in', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", other], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        with pytest.raises(ConfigError, match="another process works in"):
            plan("sim", {"run_dir": str(run_dir)})
        process.kill()
    assert plan("sim", {"run_dir": str(run_dir)})["processes"]


def test_a_launch_beside_another_graph_of_the_domain_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = Experiment.compose(["runtime=ros", f"run_dir={tmp_path / 'run'}"]).save()
    domain_id = 102 + os.getpid() % 130
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    monkeypatch.setattr(sole, "ENDS_S", 0.0)
    with sole.sole_gate(domain_id, ""), pytest.raises(SetupError, match="another graph is at work"):
        plan("sim", {"run_dir": str(run_dir)})
    assert plan("sim", {"run_dir": str(run_dir)})["processes"]


def test_learner_and_page_may_run_elsewhere(tmp_path: Path) -> None:
    saved(tmp_path / "run", "operator=console")
    words = {"run_dir": str(tmp_path / "run")}
    assert {"learner", "console"} < set(launched("sim", words))
    less = launched("sim", words | {"learner": "false", "console": "False"})
    assert not {"learner", "console"} & set(less)


def test_a_robot_without_a_run_makes_one_that_says_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"robot": "ur5e", "experiment": "reach", "operator": "none", "double": "true"}
    assert "sim" in launched("real", given)
    (run_dir,) = (tmp_path / "runs" / "reach").iterdir()
    made = Experiment.load(run_dir)
    assert (made.robot.name, made.config["operator"]["name"]) == ("ur5e", "none")
    assert made.ros.double and made.is_real
    launched("real", {"run_dir": str(run_dir), "robot": "ur5e"})
    with pytest.raises(ConfigError, match=r"another robot(.|\n)*expected: robot:=ur5e"):
        launched("real", {"run_dir": str(run_dir), "robot": "fr3"})
    with pytest.raises(ConfigError, match=r"another graph(.|\n)*real.launch.py starts it"):
        launched("sim", {"run_dir": str(run_dir)})
    with pytest.raises(ConfigError, match="experiment:= is for a new run"):
        launched("real", {"run_dir": str(run_dir), "experiment": "lift"})


def test_a_launch_argument_exchanges_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, processes = {"robot": "fr3", "experiment": "reach", "operator": "none"}, []
    for name, more in (("mujoco", {}), ("isaac", {"sim": "isaac"})):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        processes.append(launched("sim", words | more))
        (made,) = (tmp_path / name / "runs" / "reach").iterdir()
        assert Experiment.load(made).sim == name
    assert set(processes[0]) == set(processes[1])


@pytest.mark.parametrize(
    ("ros", "words", "said"),
    [
        ("sim", {"robot": "fr3", "sim": "isac"}, "did you mean 'isaac'"),
        ("sim", {}, "nothing says what to launch"),
        ("sim", {"robot": "fr4"}, "did you mean 'fr3'"),
        ("real", {"robot": "fr3"}, "a script may not drive a real arm"),
        ("sim", {"robot": "fr3", "with_view": "ture"}, r"neither true nor false(.|\n)*view:=ture"),
        ("sim", {"robot": "fr3", "learner": "maybe"}, r"neither true nor false(.|\n)*learner:="),
        ("sim", {"robot": "fr3", "camera_hz": "fast"}, r"not a number(.|\n)*camera_hz:=fast"),
        ("sim", {"robot": "fr3", "camera_h": "1"}, "did you mean 'camera_hz'"),
        ("sim", {"run_dir": "nowhere"}, "nowhere is not a run folder"),
    ],
)
def test_arguments_that_make_no_sense_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ros: str, words: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        plan(ros, words)


def test_a_launch_keeps_what_the_person_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, "/mine.xml")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    saved(tmp_path / "run", *REAL)
    for process in launched("real", {"run_dir": str(tmp_path / "run")}).values():
        env = process.kwargs["additional_env"]
        assert not {PROFILE_VARIABLE, "ROS_AUTOMATIC_DISCOVERY_RANGE"} & set(env)


def test_what_follows_the_end_of_a_process_is_as_under_robot_rl_up(tmp_path: Path) -> None:
    saved(tmp_path / "run", "operator=console")
    processes = launched("sim", {"run_dir": str(tmp_path / "run")})

    def ends(name: str, code: int, *, is_shutdown: bool = False) -> Any:
        event = types.SimpleNamespace(returncode=code, action=processes[name])
        context = types.SimpleNamespace(is_shutdown=is_shutdown)
        return processes[name].kwargs["on_exit"](event, context)

    assert all(p.kwargs["respawn"] for p in processes.values())
    assert isinstance(ends("actor", 0)[0], Shutdown)  # the work is done
    assert ends("gate", 0) is ends("actor", 1) is ends("operator", -9) is None  # once more
    for name in ("operator", "gate", "learner"):
        with pytest.raises(RuntimeError, match=f"{name} cannot go on"):
            ends(name, 2)
    assert ends("gate", 2, is_shutdown=True) is None
    (stop,) = ends("console", 2)  # the run goes on without it, and it is not started again
    assert stop.kwargs["event"].kwargs["process_matcher"].args == (processes["console"],)
    for _ in range(MAX_RESTARTS - 1):
        assert ends("sim", 1) is ends("view", 1) is None
    assert ends("sim", 1) is None and ends("view", 1) is None
    assert ends("view", 1)
    with pytest.raises(RuntimeError, match="sim cannot go on"):
        ends("sim", 1)


# --- which Python --------------------------------------------------------------------------------


def python_that(folder: Path, code: str) -> Path:
    """An environment whose interpreter is a shell script; returns the environment's folder."""
    file = folder / "bin" / "python"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{code}\n")
    file.chmod(0o755)
    return folder


def test_the_interpreter_that_has_robot_rl_is_found_whoever_runs_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has, lacks = python_that(tmp_path / "has", "exit 0"), python_that(tmp_path / "no", "exit 1")
    interpreter = of_run()["interpreter"]
    monkeypatch.delenv("ROBOT_RL_PYTHON", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(has))
    assert interpreter() == f"{has}/bin/python"
    monkeypatch.setenv("VIRTUAL_ENV", str(lacks))
    monkeypatch.setattr(sys, "executable", f"{has}/bin/python")
    assert interpreter() == f"{has}/bin/python"  # launch's own
    monkeypatch.setattr(sys, "executable", f"{lacks}/bin/python")
    with pytest.raises(RuntimeError, match=r"not installed(.|\n)*/no/bin/python(.|\n)*activate"):
        interpreter()
    monkeypatch.delenv("VIRTUAL_ENV")
    with pytest.raises(RuntimeError, match="no environment is active"):
        interpreter()
    monkeypatch.setenv("ROBOT_RL_PYTHON", f"{has}/bin/python")
    assert interpreter() == f"{has}/bin/python"
    monkeypatch.setenv("ROBOT_RL_PYTHON", "/nowhere/python")  # named, so nothing else is tried
    monkeypatch.setenv("VIRTUAL_ENV", str(has))
    with pytest.raises(RuntimeError, match=r"got: +/nowhere/python"):
        interpreter()


def test_what_the_other_interpreter_says_is_used_and_its_error_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = 'test "$2" = -c && exit 0; echo "a note"; echo "{\\"got\\": \\"$*\\"}"'
    monkeypatch.setenv("ROBOT_RL_PYTHON", f"{python_that(tmp_path / 'a', says)}/bin/python")
    ask = of_run()["ask"]
    assert ask("sim", {"robot": "fr3"}) == {"got": "-P -m robot_rl.run.launch sim robot=fr3"}
    refuses = 'test "$2" = -c && exit 0; echo "what is wrong" >&2; exit 2'
    monkeypatch.setenv("ROBOT_RL_PYTHON", f"{python_that(tmp_path / 'b', refuses)}/bin/python")
    with pytest.raises(RuntimeError, match="what is wrong"):
        ask("sim", {})


@pytest.mark.ros
def test_the_command_behind_a_launch_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "run")
    assert main(["sim", f"run_dir={tmp_path / 'run'}", "namespace=left"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["run_dir"] == str(tmp_path / "run")
    assert {p["namespace"] for p in answer["processes"] if p["parameters"]} == {"left"}
    assert main(["sim"]) == 2
    assert "nothing says what to launch" in capsys.readouterr().err


# --- packages ------------------------------------------------------------------------------------


def test_launch_files_are_in_the_wheel_and_found_from_a_checkout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wheel = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shipped = wheel["targets"]["wheel"]["force-include"]
    assert shipped["launch"] == "robot_rl/launch"
    assert shipped["sim/isaac"] == "robot_rl/sim/isaac"  # where `config.compose.shipped` looks
    assert main(["--folder"]) == 0
    assert Path(capsys.readouterr().out.strip()) == launch_dir() == REPO / "launch"


def bringup(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of `setup` in the bringup package in `folder`."""
    import setuptools

    got: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **kwargs: got.update(kwargs))
    runpy.run_path(str(folder / "setup.py"))
    return got


def test_bringup_has_the_version_of_the_pip_package_every_launch_file_and_its_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    root = ElementTree.parse(BRINGUP / "package.xml").getroot()
    assert root.get("format") == "3"
    assert root.findtext("version") == version and root.findtext("name") == "robot_rl_bringup"
    got = bringup(BRINGUP, monkeypatch)
    assert got["version"] == version
    installed = {(BRINGUP / file).resolve() for _, files in got["data_files"] for file in files}
    assert set((REPO / "launch").glob("*.py")) <= installed
    assert all(path.is_file() for path in installed)
    scripts = dict(line.split(" = ") for line in got["entry_points"]["console_scripts"])
    assert scripts == {kind: f"robot_rl.run.nodes:{kind}" for kind in KINDS}
    assert "lib/robot_rl_bringup" in (BRINGUP / "setup.cfg").read_text()


def test_bringup_copied_elsewhere_takes_the_installed_launch_files_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "ws" / "src" / "robot_rl_bringup"
    shutil.copytree(BRINGUP, copy)
    installed = tmp_path / "site" / "robot_rl" / "launch"
    shutil.copytree(REPO / "launch", installed)
    monkeypatch.delenv("ROBOT_RL_PYTHON", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(python_that(tmp_path / "a", f"echo {installed}")))
    *_, (target, files) = bringup(copy, monkeypatch)["data_files"]
    assert target == "share/robot_rl_bringup/launch"
    found = {(copy / file).resolve().name for file in files}
    assert found == {"of_run.py", "sim.launch.py", "real.launch.py"}
    monkeypatch.setenv("VIRTUAL_ENV", str(python_that(tmp_path / "b", "exit 1")))
    with pytest.raises(SystemExit, match=r"no launch files(.|\n)*activate the environment"):
        bringup(copy, monkeypatch)
    done = subprocess.run(
        [sys.executable, "setup.py", "--name"], cwd=copy, capture_output=True, check=False
    )
    assert done.returncode != 0  # a build fails, instead of installing nothing


@pytest.mark.ros
def test_colcon_builds_bringup_and_its_scripts_are_our_nodes(tmp_path: Path) -> None:
    pytest.importorskip("colcon_ros", reason="colcon-ros is not installed: make setup")
    shutil.copytree(BRINGUP, tmp_path / "src" / BRINGUP.name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    env = os.environ | {"ROBOT_RL_PYTHON": sys.executable, "PATH": path}
    build = [sys.executable, "-m", "colcon", "build"]
    subprocess.run(build, cwd=tmp_path, env=env, check=True, capture_output=True)
    installed = tmp_path / "install" / BRINGUP.name
    launch = installed / "share" / BRINGUP.name / "launch"
    assert {p.name for p in launch.iterdir()} == {p.name for p in (REPO / "launch").glob("*.py")}
    script = installed / "lib" / BRINGUP.name / "gate"
    line = f". install/setup.bash && exec {script} --ros-args -p heartbeat_hz:=-1.0"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_SETUP and "heartbeat_hz" in done.stderr
