"""The graph against nodes, parameters, launch files, packages and docs. No ROS needed."""

from __future__ import annotations

import ast
import re
import socket
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from robot_rl.config.compose import options
from robot_rl.config.registry import REGISTRY, resolve
from robot_rl.errors import ConfigError, SetupError
from robot_rl.ros import docs, graph, parameters
from robot_rl.ros.graph import (
    IMAGE_PROFILE,
    PROFILE_VARIABLE,
    NodeSpec,
    RealGraphConfig,
    SimGraphConfig,
    real_graph,
    ros_arguments,
    sim_graph,
    stop_order,
)
from robot_rl.ros.topics import CLOCK, DIAGNOSTICS, SERVICES, SIMULATION, TF_STATIC, TOPICS
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from tests.support.ros import HAS_ROS, NO_ROS

REPO = Path(__file__).resolve().parents[2]
ROS = REPO / "robot_rl" / "ros"
BRINGUP = REPO / "ros2_ws" / "src" / "robot_rl_bringup"
GRAPHS = {
    "sim": lambda: sim_graph(SimGraphConfig(), "runs/x"),
    "sim with cameras": lambda: sim_graph(SimGraphConfig(camera_hz=10.0), "runs/x"),
    "real": lambda: real_graph(RealGraphConfig(), "runs/x"),
}
REAL = ["ros=real", "operator=none"]
ROS_CONFIGS = [p for p in (REPO / "configs" / "ros").glob("*.yaml") if p.stem in ("sim", "real")]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_node_of_every_graph_exists_and_declares_its_parameters(name: str) -> None:
    for spec in GRAPHS[name]():
        assert spec.module == "robot_rl.run.nodes"
        nodes = (REPO / "robot_rl" / "run" / "nodes.py").read_text()  # importing it takes rclpy
        assert f"def {spec.kind}(args" in nodes and f'"{spec.kind}": {spec.kind},' in nodes
        assert parameters.check(spec.name, spec.params) == dict(spec.params)


def test_the_real_graph_has_no_simulator_no_sim_time_and_nobody_who_acknowledges() -> None:
    graph = GRAPHS["real"]()
    assert [spec.name for spec in graph] == ["gate", "watchdog", "operator", "actor"]
    assert not any(spec.params.get("use_sim_time") for spec in graph)
    assert all(spec.params.get("unattended", False) is False for spec in graph)
    with pytest.raises(ValueError, match="simulation only"):
        RealGraphConfig(nodes={"operator": {"unattended": True}})
    with pytest.raises(ValueError, match="no sim node"):
        RealGraphConfig(nodes={"sim": {}})


def test_the_watchdog_trusts_no_simulated_clock() -> None:
    (watchdog,) = (s for s in GRAPHS["sim"]() if s.name == "watchdog")
    assert "use_sim_time" not in watchdog.params


def test_only_nodes_with_images_use_shared_memory() -> None:
    with_shm = {s.name for s in GRAPHS["sim with cameras"]() if PROFILE_VARIABLE in s.env}
    assert with_shm == {"sim", "actor"}
    assert all(
        s.env[PROFILE_VARIABLE] == IMAGE_PROFILE
        for s in GRAPHS["sim with cameras"]()
        if s.name in with_shm
    )
    assert not any(s.env for s in GRAPHS["sim"]())


def test_drivers_stop_first_the_arm_last_and_the_watchdog_before_the_gate() -> None:
    names = [s.name for s in stop_order(GRAPHS["sim"]())]
    assert names == ["actor", "operator", "watchdog", "gate", "sim"]


@pytest.mark.parametrize("path", ROS_CONFIGS, ids=lambda p: p.stem)
def test_shipped_configs_build_and_name_known_things(path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    assert data["name"] == path.stem and path.stem in REGISTRY["ros"]
    resolve("ros", data)


def test_a_typo_in_a_node_or_parameter_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'watchdog'"):
        SimGraphConfig(nodes={"watchdgo": {}})
    with pytest.raises(ConfigError, match="did you mean 'silence_s'"):
        SimGraphConfig(nodes={"watchdog": {"silense_s": 0.3}})
    with pytest.raises(ConfigError, match=r"\[0.05, 5.0\] s"):
        SimGraphConfig(nodes={"watchdog": {"silence_s": 60.0}})
    with pytest.raises(ValueError, match="real_time_factor"):
        SimGraphConfig(real_time_factor=0.01)


def test_parameters_of_the_configuration_win() -> None:
    config = SimGraphConfig(nodes={"watchdog": {"silence_s": 0.3}, "sim": {"publish_hz": 100}})
    params = {s.name: s.params for s in sim_graph(config, "runs/x")}
    assert params["watchdog"]["silence_s"] == 0.3
    assert params["sim"]["publish_hz"] == 100.0 and isinstance(params["sim"]["publish_hz"], float)


def test_ros_arguments_carry_name_namespace_and_remaps() -> None:
    spec = NodeSpec("m", "gate", "left", remaps={"joint_states": "franka/joint_states"})
    assert ros_arguments(spec, "p.yaml") == [
        "--ros-args", "-r", "__node:=gate", "-r", "__ns:=/left",
        "-r", "joint_states:=franka/joint_states", "--params-file", "p.yaml",
    ]  # fmt: skip


def test_names_are_relative_except_those_that_ros_fixes() -> None:
    absolute = {t.name for t in TOPICS if t.name.startswith("/")}
    assert absolute == {CLOCK.name, DIAGNOSTICS.name, TF_STATIC.name}
    assert not any(s.name.startswith("/") for s in (*SERVICES, *SIMULATION))


def sources() -> list[tuple[Path, ast.Module]]:
    return [(p, ast.parse(p.read_text())) for p in sorted(ROS.glob("*.py"))]


def test_one_executor_kind_and_endpoints_only_from_the_tables() -> None:
    makers = {"create_publisher", "create_subscription", "create_service"}
    for path, tree in sources():
        names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not names & {"MultiThreadedExecutor", "EventsExecutor", "Rate", "create_rate"}, path
        assert path.name == "endpoints.py" or not names & makers, path


def test_no_topic_name_in_the_code_is_absolute() -> None:
    allowed = {CLOCK.name, DIAGNOSTICS.name, TF_STATIC.name}
    for path, tree in sources():
        strings = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
        suffixes = {id(v) for s in strings for v in s.values}  # e.g. of f"{name}/rate_hz"
        for node in ast.walk(tree):
            if id(node) in suffixes:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                absolute = re.fullmatch(r"/[a-z_]+(/[a-z_]+)*", node.value)
                assert not absolute or node.value in allowed, f"{path}: {node.value}"


def test_message_data_is_filled_in_one_place_and_from_array_array() -> None:
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                targets = [t.attr for t in node.targets if isinstance(t, ast.Attribute)]
                assert "data" not in targets or path.name == "convert.py", path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "Image" or path.name == "convert.py", path
    convert = (ROS / "convert.py").read_text()
    pictures = convert[convert.index("def image_to") : convert.index("def _bytes")]
    assert "frombytes" in convert.split("def _bytes")[1] and "tolist()" not in pictures


def test_rclpy_free_modules_import_without_rclpy() -> None:
    for name in ("topics", "parameters", "graph", "supervise", "wire", "docs"):
        tree = ast.parse((ROS / f"{name}.py").read_text())
        imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not any(m.split(".")[0] in ("rclpy", "std_msgs", "geometry_msgs") for m in imported)


def test_the_generated_page_is_fresh() -> None:
    text = docs.PAGE.read_text()
    assert docs.page(text) == text, "run: python -m robot_rl.ros.docs"


@pytest.mark.ros
@pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)
def test_every_topic_and_service_type_exists_and_has_a_profile() -> None:
    from robot_rl.ros.endpoints import message_type
    from robot_rl.ros.qos import PROFILES

    for entry in (*TOPICS, *SERVICES, *SIMULATION):
        assert message_type(entry.type).__name__ == entry.type.split("/")[-1]
    assert {t.qos for t in TOPICS} <= set(PROFILES)


def test_a_remap_of_no_topic_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'joint_states'"):
        RealGraphConfig(remaps={"joint_state": "/fr3/joint_states"})
    RealGraphConfig(remaps={"camera/wrist/color/image_raw": "/rs/wrist/color/image_raw"})


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_experiment_of_a_robot_composes_for_a_real_arm(experiment: str) -> None:
    if experiment == "gym":  # an environment without a robot
        return
    words = [f"experiment={experiment}", "runtime=ros", "ros=real", "operator=gamepad"]
    graph = graph_of(Experiment.compose(words))
    assert [spec.name for spec in graph] == ["gate", "watchdog", "operator", "actor"]


@pytest.mark.parametrize("operator", ["scripted", "impatient", "console operator.with_script=true"])
def test_a_script_does_not_drive_a_real_arm(operator: str) -> None:
    words = ["runtime=ros", "ros=real", *f"operator={operator}".split()]
    experiment = Experiment.compose(words)
    with pytest.raises(ConfigError, match="a script may not drive a real arm"):
        graph_of(experiment)
    with pytest.raises(ConfigError, match="a script may not drive a real arm"):
        experiment.check()
    Experiment.compose([*words, "ros.double=false", "runtime=lockstep"]).check()


def test_the_parameter_tables_hold_their_own_defaults() -> None:
    for node, table in parameters.TABLES.items():
        assert len({p.name for p in table}) == len(table)
        for p in table:
            assert p.check(p.default, node) == p.default, asdict(p)


@pytest.mark.parametrize(
    ("operator", "nodes", "unattended"),
    [
        (["operator=scripted"], {"sim", "gate", "watchdog", "operator", "actor"}, True),
        (["operator=console"], {"sim", "gate", "watchdog", "operator", "view", "actor"}, False),
        (
            ["operator=console", "operator.with_script=true"],
            {"sim", "gate", "watchdog", "operator", "view", "actor"},
            True,
        ),
    ],
)
def test_who_works_at_the_page_decides_who_looks_and_who_acknowledges(
    operator: list[str], nodes: set[str], unattended: bool, tmp_path: Path
) -> None:
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.graph import graph_of, with_console

    overrides = ["experiment=peg_insert", "runtime=ros", f"run_dir={tmp_path}"]
    experiment = Experiment.compose([*overrides, *operator])
    graph = {spec.name: spec for spec in graph_of(experiment)}
    assert graph.keys() == nodes
    assert graph["operator"].params["unattended"] is unattended
    assert with_console(experiment) is ("view" in graph)


def test_a_domain_in_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "DOMAIN_PORT", 20000)  # away from ROS graphs that run beside
    monkeypatch.setattr(graph, "SAFE_DOMAINS", range(41, 44))
    assert {graph.free_domain() for _ in range(50)} == {41, 43}  # a real arm's run may come to 42
    monkeypatch.setattr(graph, "SAFE_DOMAINS", range(5, 8))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as all_hear:
        all_hear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as DDS does
        all_hear.bind(("", 20000 + 250 * 5))
        assert {graph.free_domain() for _ in range(50)} == {6, 7}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
            first.bind(("127.0.0.1", 20000 + 250 * 6 + 10))
            assert {graph.free_domain() for _ in range(50)} == {7}
            monkeypatch.setattr(graph, "SAFE_DOMAINS", range(5, 7))
            with pytest.raises(SetupError, match="no free ROS domain"):
                graph.free_domain()
