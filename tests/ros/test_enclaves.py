"""SROS 2 keystores: exactly what each node needs, signed; and nothing runs without security."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError
from robot_rl.ros.enclaves import Rights, enclave_of, make, rights_of, secured
from robot_rl.ros.graph import Graph, ros_arguments
from robot_rl.ros.supervise import Supervisor
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of, heard_topics
from tests.support.ros import new_domain

WORDS = {
    "sim": ("experiment=peg_insert_easy_pixels", "runtime=ros", "operator=console"),
    "ur5e_forward": (*("experiment=reach", "runtime=ros", "ros=real", "ros.double=true"),
                     *("robot=ur5e_forward", "operator=twist")),
    "fr3_crisp": (*("experiment=reach", "runtime=ros", "ros=real", "ros.double=true"),
                  *("robot=fr3_crisp", "operator=console")),
}  # fmt: skip
COMMANDS = {"rt/target_pose", "rt/target_joints", "rt/gripper/command"}
STILL_S = 4.0  # nothing new for this long: every node has what it uses
OPENSSL = shutil.which("openssl")


def composed(name: str, *more: str) -> Experiment:
    return Experiment.compose([*WORDS[name], *more])


@pytest.fixture(scope="module")
def keystore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = composed("sim")
    folder = tmp_path_factory.mktemp("keys") / "sros2"
    return make(folder, graph_of(experiment), experiment.driver, 42, force=False)


@pytest.mark.parametrize("name", WORDS)
def test_only_the_gate_may_command_and_only_the_arm_may_say_where_it_is(name: str) -> None:
    experiment = composed(name)
    rights = rights_of(graph_of(experiment), experiment.driver)
    who = {n for n, r in rights.items() if r.publish & COMMANDS}
    assert who == {"/robot_rl/gate"}
    says = {n for n, r in rights.items() if any("joint_states" in t for t in r.publish)}
    assert says == {"/robot_rl/sim"}


def test_a_driver_has_an_enclave_that_says_states_and_hears_commands_and_no_more() -> None:
    experiment = Experiment.compose(
        ["experiment=reach", "runtime=ros", "ros=real", "robot=ur5e_fzi", "operator=twist"]
    )
    rights = rights_of(graph_of(experiment), experiment.driver)
    driver = rights["/robot_rl/driver"]
    assert "rt/joint_states" in driver.publish and "rr/gate/stopReply" not in driver.publish
    assert "rq/gate/stopRequest" not in driver.publish
    gate = rights["/robot_rl/gate"]
    assert driver.subscribe & gate.publish
    assert not driver.publish & gate.publish - {"ros_discovery_info", "rt/rosout",
                                                "rt/parameter_events"}  # fmt: skip


def test_two_arms_have_enclaves_of_their_own() -> None:
    experiment = Experiment.compose(
        ["experiment=reach", "runtime=ros", "actors=left,right", "operator=none"]
    )
    rights = rights_of(graph_of(experiment), experiment.driver)
    left, right = rights["/robot_rl/left/gate"], rights["/robot_rl/right/gate"]
    assert "rt/left/target_pose" in left.publish and "rt/left/target_pose" not in right.publish


def test_a_keystore_can_be_read_by_its_user_alone_and_is_not_replaced_unasked(
    keystore: Path,
) -> None:
    for key in keystore.rglob("key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not list(keystore.rglob("*ca.key.pem"))  # nobody can sign another one
    experiment = composed("sim")
    before = (keystore / "enclaves/robot_rl/gate/cert.pem").read_bytes()
    with pytest.raises(ConfigError, match="is a keystore already"):
        make(keystore, graph_of(experiment), experiment.driver, 42, force=False)
    assert (keystore / "enclaves/robot_rl/gate/cert.pem").read_bytes() == before


def test_the_verb_makes_it_and_says_how_it_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sros2"
    words = ["keys", str(folder), "--sros2", *WORDS["fr3_crisp"], "ros.domain_id=7"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert f"ros.keystore={folder}" in said and "domain 7" in said
    assert (folder / "enclaves/robot_rl/arm/permissions.p7s").is_file()
    assert main(words) != 0  # there is one
    assert "--force" in capsys.readouterr().err


@pytest.mark.skipif(OPENSSL is None, reason="no openssl on this machine")
def test_signatures_hold_and_an_altered_permission_is_noticed(
    keystore: Path, tmp_path: Path
) -> None:
    gate = keystore / "enclaves/robot_rl/gate"
    authority = keystore / "public/permissions_ca.cert.pem"

    def verify(path: Path) -> subprocess.CompletedProcess[bytes]:
        words = ["smime", "-verify", "-text", "-in", str(path), "-CAfile", str(authority)]
        return subprocess.run([str(OPENSSL), *words], capture_output=True, check=False)

    for name in ("permissions", "governance"):
        assert verify(gate / f"{name}.p7s").returncode == 0
    signed = verify(gate / "permissions.p7s").stdout.replace(b"\r\n", b"\n")
    assert signed.strip() == (gate / "permissions.xml").read_bytes().strip()
    spoilt = tmp_path / "permissions.p7s"
    text = (gate / "permissions.p7s").read_bytes()
    spoilt.write_bytes(text.replace(b"rt/gate/verdict", b"rt/gate/request"))
    assert verify(spoilt).returncode != 0
    chain = ["verify", "-CAfile", str(authority), str(gate / "cert.pem")]
    assert subprocess.run([str(OPENSSL), *chain], check=False).returncode == 0


def test_permissions_are_for_one_domain_and_one_enclave_and_deny_the_rest(keystore: Path) -> None:
    for place in (keystore / "enclaves/robot_rl").iterdir():
        (grant,) = ElementTree.parse(place / "permissions.xml").getroot().iter("grant")
        assert grant.get("name") == f"/robot_rl/{place.name}"
        assert grant.findtext("subject_name") == f"CN=/robot_rl/{place.name}"
        assert [i.text for i in grant.iter("id")] == ["42"]
        assert grant.findtext("default") == "DENY"
        told = {t.text for t in grant.iter("topic")}
        assert "*" not in told and "rt/*" not in told


def test_a_graph_with_a_keystore_puts_every_node_into_its_enclave(keystore: Path) -> None:
    words = f"ros.keystore={keystore}"
    for spec in graph_of(composed("sim", words)):
        assert spec.env["ROS_SECURITY_STRATEGY"] == "Enforce"
        arguments = ros_arguments(spec, "p.yaml")
        assert arguments[arguments.index("--enclave") + 1] == f"/robot_rl/{spec.name}"
    with pytest.raises(ConfigError, match="no enclave for arm"):
        graph_of(composed("fr3_crisp", words))


def _security_is_built_in() -> bool:
    library = Path(sys.prefix) / "lib" / "libfastrtps.so"
    return not library.is_file() or b"PKI-DH" in library.read_bytes()


@pytest.mark.ros
@pytest.mark.skipif(_security_is_built_in(), reason="this ROS 2 has DDS security")
def test_a_node_refuses_to_run_without_dds_security_and_says_so(
    keystore: Path, run_dir: Path
) -> None:
    (spec,) = (s for s in secured(graph_of(composed("sim")), keystore) if s.kind == "watchdog")
    words = ["-m", spec.module, spec.kind, "--ros-args", "--enclave", spec.enclave]
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **spec.env, "ROS_DOMAIN_ID": "97"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "watchdog cannot come into its SROS 2 enclave" in done.stderr
    assert "ROS 2 from pip wheels has none" in done.stderr
    assert "Traceback" not in done.stderr


# --- the lists against running graphs ------------------------------------------------------------


def _said(node: Any, graph: Graph) -> dict[str, Rights]:
    """What each node really publishes and subscribes to, by the names of DDS."""
    found: dict[str, Rights] = {}
    for spec in graph:
        place = (spec.name, f"/{spec.namespace.strip('/')}")
        publish = {"rt" + n for n, _ in node.get_publisher_names_and_types_by_node(*place)}
        subscribe = {"rt" + n for n, _ in node.get_subscriber_names_and_types_by_node(*place)}
        for name, _ in node.get_service_names_and_types_by_node(*place):
            publish.add(f"rr{name}Reply")
            subscribe.add(f"rq{name}Request")
        for name, _ in node.get_client_names_and_types_by_node(*place):
            publish.add(f"rq{name}Request")
            subscribe.add(f"rr{name}Reply")
        found[enclave_of(spec)] = Rights(frozenset(publish), frozenset(subscribe))
    return found


@pytest.mark.ros
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", WORDS)
def test_running_nodes_use_nothing_that_their_enclaves_do_not_allow(
    name: str, tmp_path: Path
) -> None:
    from rclpy._rclpy_pybind11 import NodeNameNonExistentError

    from robot_rl.ros.runtime import visitor

    experiment = composed(name, f"run_dir={tmp_path}", f"ros.domain_id={new_domain()}")
    experiment.save()
    graph = graph_of(experiment)
    rights = rights_of(graph, experiment.driver, heard_topics(experiment))
    domain_id = experiment.ros.domain_id
    said: dict[str, Rights] = {}
    with Supervisor(graph, tmp_path, domain_id), visitor("looker", domain_id) as node:
        seen_s, end_s = time.monotonic(), time.monotonic() + 60.0
        while time.monotonic() < min(seen_s + STILL_S, end_s) or not said:
            assert time.monotonic() < end_s, "the graph did not come up"
            time.sleep(0.1)
            try:
                now = _said(node, graph)
            except NodeNameNonExistentError:
                continue
            if now != said:
                said, seen_s = now, time.monotonic()
    for enclave, real in said.items():
        allowed = rights[enclave]
        assert real.publish and real.subscribe, f"{enclave} was not seen"
        for has, may in ((real.publish, allowed.publish), (real.subscribe, allowed.subscribe)):
            missing = {n for n in has if not any(fnmatchcase(n, m) for m in may)}
            assert not missing, f"{enclave} would be refused {sorted(missing)}"
