"""SROS 2: who each node of a graph is, and exactly what it may publish and subscribe to.

`make` writes a keystore as `ROS_SECURITY_KEYSTORE` expects it (the layout of the `sros2` tool): two
authorities, a governance that lets nobody in without a certificate and encrypts everything, and an
enclave for each node with a signed list of its topics and services. The lists follow from the topic
table and the graph. An enclave `driver` is for the arm's own driver; a person adds to it what that
driver says beside.

Files and XML: OMG DDS Security 1.1, sections 8.4 and 9.4; names of topics and services in DDS: the
ROS 2 design article "Topic and Service name mapping to DDS".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from robot_rl.errors import ConfigError, SetupError
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import parameters, topics
from robot_rl.ros.graph import Graph, NodeSpec, remaps_of

ROOT = "robot_rl"  # where the names of our enclaves begin
DRIVER = "driver"  # enclave of the arm's own driver, and whatever else is no node of ours
VALID = timedelta(days=3650)
CERTIFICATES = ("identity_ca", "permissions_ca")
ENVIRONMENT = {"ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_STRATEGY": "Enforce"}
PARAMETERS = ("describe_parameters", "get_parameter_types", "get_parameters", "list_parameters",
              "set_parameters", "set_parameters_atomically", "get_type_description")  # fmt: skip
ACTION_SERVICES = ("send_goal", "cancel_goal", "get_result")
ACTION_TOPICS = ("feedback", "status")


@dataclass(frozen=True, slots=True)
class Rights:
    """What a participant may publish and subscribe to, by the names that DDS uses."""

    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()

    def __or__(self, other: Rights) -> Rights:
        """Both together."""
        return Rights(self.publish | other.publish, self.subscribe | other.subscribe)

    @property
    def mirrored(self) -> Rights:
        """What the other side needs."""
        return Rights(self.subscribe, self.publish)


CONTEXT = Rights(
    frozenset({"ros_discovery_info", "rt/rosout", "rt/parameter_events"}),
    frozenset({"ros_discovery_info"}),
)
"""Of every process that uses rclpy."""


def enclave_of(spec: NodeSpec) -> str:
    """Name of a node's enclave: its name in the graph, under `ROOT`."""
    return _enclave(spec.namespace.strip("/"), spec.name)


def _enclave(namespace: str, name: str) -> str:
    return "/" + "/".join(filter(None, (ROOT, namespace, name)))


def secured(graph: Graph, keystore: Path) -> Graph:
    """The graph whose ROS nodes come into the enclaves of a keystore, or not at all.

    Raises:
        ConfigError: the keystore has no enclave for one of them.
    """
    folder = keystore.expanduser().resolve()
    env = {**ENVIRONMENT, "ROS_SECURITY_KEYSTORE": str(folder)}
    nodes: list[NodeSpec] = []
    for spec in graph:
        if spec.arguments is not None:  # speaks no ROS
            nodes.append(spec)
            continue
        name = enclave_of(spec)
        place = folder / "enclaves" / name.lstrip("/")
        if not (place / "permissions.p7s").is_file():
            raise ConfigError(
                f"the keystore {folder} has no enclave for {spec.label}",
                expected=f"{place}/permissions.p7s",
                got="no such file",
                fix="make it with the words of this run: robot-rl keys FOLDER --sros2 WORDS",
            )
        nodes.append(replace(spec, env={**spec.env, **env}, enclave=name))
    return tuple(nodes)


def rights_of(graph: Graph, driver: ArmDriver, heard: Sequence[str] = ()) -> dict[str, Rights]:
    """Enclave -> what it needs, and nothing beside: of all ROS nodes, and of each arm's driver.

    heard: topics of a person's device that another node publishes (`input_config.Hears`).
    """
    found: dict[str, Rights] = {}
    ros = [spec for spec in graph if spec.arguments is None]
    for namespace in dict.fromkeys(spec.namespace.strip("/") for spec in ros):
        arm = [spec for spec in ros if spec.namespace.strip("/") == namespace]
        ours = [spec for spec in arm if spec.kind != "sim"]
        drivers = _what_is_missing(_needs(spec, driver, heard) for spec in ours)
        for spec in arm:
            is_double = spec.kind == "sim" and driver.is_vendors
            found[enclave_of(spec)] = _needs(spec, driver, heard) | (
                drivers if is_double else Rights()
            )
        if ours == arm:
            found[_enclave(namespace, DRIVER)] = drivers | CONTEXT
    return found


def _needs(spec: NodeSpec, driver: ArmDriver, heard: Sequence[str]) -> Rights:
    """What one node needs."""
    mine = _own(spec) | _table(spec)
    defaults = parameters.table(spec.kind)
    sets = "arm" if spec.kind == "view" else ""
    if "sim_name" in defaults:
        sets = str(spec.params.get("sim_name", defaults["sim_name"].default))
    if sets:
        mine |= _call(_full(spec, f"{sets}/set_parameters"))
    if driver.is_vendors and _is_one(spec.kind, *topics.JOINT_STATES.readers, "arm"):
        mine |= Rights(subscribe=frozenset({"rt" + _full(spec, driver.gripper.state_topic)}))
    if spec.kind == "operator":
        mine |= Rights(subscribe=frozenset("rt" + _full(spec, name) for name in heard))
    if spec.kind == "arm":
        mine |= _of_driver(driver, spec)
    if spec.kind == "watchdog":
        manager = spec.params.get("manager")
        names = [spec.params.get(name) for name in ("stop_service", "start_service")]
        for name in map(str, filter(None, names)):
            mine |= _call(_full(spec, name))
        mine |= _manager(spec, str(manager or ""))
    return mine


def _what_is_missing(needs: Iterable[Rights]) -> Rights:
    """Whatever nodes hear that none of them says, and the opposite: that is left to the driver.

    Services that nobody calls are for people, and stay theirs.
    """
    all_ = Rights()
    for mine in needs:
        all_ |= mine
    publish = (n for n in all_.subscribe - all_.publish if not n.startswith("rq"))
    subscribe = (n for n in all_.publish - all_.subscribe if not n.startswith("rr"))
    return Rights(frozenset(publish), frozenset(subscribe))


def make(
    folder: Path,
    graph: Graph,
    driver: ArmDriver,
    domain_id: int,
    *,
    heard: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Write a keystore for the ROS nodes of a graph in one ROS domain; returns `folder`.

    Raises:
        ConfigError: there is one, and `force` is not set.
        SetupError: the console extra, which has the library, is not installed.
    """
    if (folder / "enclaves").exists() and not force:
        raise ConfigError(
            f"{folder} is a keystore already",
            expected="a folder without one",
            got=str(folder / "enclaves"),
            fix="choose another folder, or --force; every node then needs its new enclave",
        )
    signer = _Signer()
    for name in CERTIFICATES:
        _write(folder / "public" / f"{name}.cert.pem", signer.ca_pem, 0o644)
    governance = signer.signed(_governance(domain_id))
    _write(folder / "enclaves" / "governance.p7s", governance, 0o644)
    for name, rights in rights_of(graph, driver, heard).items():
        place = folder / "enclaves" / name.lstrip("/")
        certificate, key = signer.identity(name)
        text = _permissions(name, rights, domain_id, signer)
        _write(place / "cert.pem", certificate, 0o644)
        _write(place / "key.pem", key, 0o600)
        _write(place / "permissions.xml", text.encode(), 0o644)
        _write(place / "permissions.p7s", signer.signed(text), 0o644)
        _write(place / "governance.p7s", governance, 0o644)
        for authority in CERTIFICATES:
            _write(place / f"{authority}.cert.pem", signer.ca_pem, 0o644)
    return folder


# --- rights --------------------------------------------------------------------------------------


def _own(spec: NodeSpec) -> Rights:
    """What rclpy itself needs."""
    found = CONTEXT
    for verb in PARAMETERS:
        found |= _call(_full(spec, f"{spec.name}/{verb}")).mirrored
    if spec.params.get("use_sim_time"):
        found |= Rights(subscribe=frozenset({"rt" + _full(spec, topics.CLOCK.name)}))
    return found


def _table(spec: NodeSpec) -> Rights:
    """What the topic table says."""
    publish, subscribe, calls = set[str](), set[str](), Rights()
    for topic in topics.TOPICS:
        names = {"rt" + name for name in _names(spec, topic.name)}
        if _is_one(spec.kind, topic.writer):
            publish |= names
        if _is_one(spec.kind, *topic.readers):
            subscribe |= names
    for service in (*topics.SERVICES, *topics.SIMULATION):
        for name in _names(spec, service.name):
            if _is_one(spec.kind, service.server):
                calls |= _call(name).mirrored
            if _is_one(spec.kind, *service.callers):
                calls |= _call(name)
    return Rights(frozenset(publish), frozenset(subscribe)) | calls


def _is_one(kind: str, *told: str) -> bool:
    words = {word for text in told for word in re.findall(r"\w+", text)}
    return kind in words or {"every", "node"} <= words


def _of_driver(driver: ArmDriver, spec: NodeSpec) -> Rights:
    """What the arm node hears of a vendor's driver, and calls of it."""
    found = Rights(subscribe=frozenset("rt" + _full(spec, told.topic) for told in driver.told))
    for call in driver.recover:
        name = _full(spec, call.name)
        found |= _act(name) if call.is_action else _call(name)
    if driver.tare:
        found |= _call(_full(spec, driver.tare))
    found |= _manager(spec, driver.controllers.manager)
    gripper = driver.gripper
    if driver.controllers.home:
        found |= _act(_full(spec, f"{driver.controllers.home}/follow_joint_trajectory"))
    if gripper.kind == "topic":
        found |= Rights(publish=frozenset({"rt" + _full(spec, gripper.name)}))
    for verb in {"command": ("",), "franka": ("move", "grasp")}.get(gripper.kind, ()):
        found |= _act(_full(spec, "/".join(filter(None, (gripper.name, verb)))))
    return found


def _manager(spec: NodeSpec, manager: str) -> Rights:
    """To switch controllers; "" = there is no manager."""
    found = Rights()
    for verb in ("switch_controller", "list_controllers") if manager else ():
        found |= _call(_full(spec, f"{manager}/{verb}"))
    return found


def _names(spec: NodeSpec, name: str) -> Iterator[str]:
    """Absolute names of an entry of the table, as this node calls it. `{x}` becomes `*`."""
    pattern = re.compile(re.sub(r"\{\w+\}", r"[^/]+", name))
    remaps = remaps_of(spec)
    theirs = [to for ours, to in remaps.items() if pattern.fullmatch(ours)]
    if not theirs or "{" in name:
        theirs.append(re.sub(r"\{\w+\}", "*", name))
    return (_full(spec, name) for name in theirs)


def _full(spec: NodeSpec, name: str) -> str:
    name = remaps_of(spec).get(name, name)
    if name.startswith("/"):
        return name
    return "/" + "/".join(filter(None, (spec.namespace.strip("/"), name)))


def _call(name: str) -> Rights:
    """To call a service."""
    return Rights(frozenset({f"rq{name}Request"}), frozenset({f"rr{name}Reply"}))


def _act(name: str) -> Rights:
    """To call an action."""
    found = Rights(subscribe=frozenset(f"rt{name}/_action/{topic}" for topic in ACTION_TOPICS))
    for verb in ACTION_SERVICES:
        found |= _call(f"{name}/_action/{verb}")
    return found


# --- files ---------------------------------------------------------------------------------------


class _Signer:
    """One authority for identities and permissions. Its secret key is never written."""

    def __init__(self) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.hazmat.primitives.serialization import pkcs7
        except ImportError as error:
            raise SetupError(
                "keys for SROS 2 need the library cryptography",
                expected="the extra `console`",
                got=str(error),
                fix="pip install 'robot-rl[console]'",
            ) from error
        self._x509, self._hashes, self._ec = x509, hashes, ec
        self._serialization, self._pkcs7 = serialization, pkcs7
        self.begins = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
        self.ends = self.begins + VALID
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = self._named("robot-rl SROS 2")
        builder = self._certificate(self._name, self._key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=1), critical=True
        )
        self._ca = builder.sign(self._key, hashes.SHA256())
        self.ca_pem: bytes = self._ca.public_bytes(serialization.Encoding.PEM)

    def identity(self, name: str) -> tuple[bytes, bytes]:
        """Certificate and secret key of an enclave, as PEM."""
        s = self._serialization
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        builder = self._certificate(self._named(name), key.public_key())
        builder = builder.add_extension(
            self._x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        pem = s.Encoding.PEM
        secret = key.private_bytes(pem, s.PrivateFormat.PKCS8, s.NoEncryption())
        return builder.sign(self._key, self._hashes.SHA256()).public_bytes(pem), secret

    def signed(self, text: str) -> bytes:
        """Text with its signature, as S/MIME."""
        kind = self._pkcs7
        builder = kind.PKCS7SignatureBuilder().set_data(text.encode())
        builder = builder.add_signer(self._ca, self._key, self._hashes.SHA256())
        options = [kind.PKCS7Options.Text, kind.PKCS7Options.DetachedSignature]
        return builder.sign(self._serialization.Encoding.SMIME, options)

    def _named(self, name: str) -> Any:
        kind = self._x509.oid.NameOID.COMMON_NAME
        return self._x509.Name([self._x509.NameAttribute(kind, name)])

    def _certificate(self, subject: Any, public: Any) -> Any:
        builder = self._x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(public).serial_number(self._x509.random_serial_number())
        return builder.not_valid_before(self.begins).not_valid_after(self.ends)


SCHEMA = "http://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_"
HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<dds xmlns:xsi="http://www.w3.org/2001/'
    f'XMLSchema-instance" xsi:noNamespaceSchemaLocation="{SCHEMA}'
)


def _xml(tag: str, *inner: str) -> str:
    return f"<{tag}>{''.join(inner)}</{tag}>\n"


def _governance(domain_id: int) -> str:
    """Nobody without a certificate, nothing without permission, everything encrypted."""
    told: Mapping[str, str] = {
        "enable_discovery_protection": "true",
        "enable_liveliness_protection": "true",
        "enable_read_access_control": "true",
        "enable_write_access_control": "true",
        "metadata_protection_kind": "ENCRYPT",
        "data_protection_kind": "ENCRYPT",
    }
    topic = _xml("topic_expression", "*") + "".join(_xml(*item) for item in told.items())
    rule = _xml(
        "domain_rule",
        _xml("domains", _xml("id", str(domain_id))),
        _xml("allow_unauthenticated_participants", "false"),
        _xml("enable_join_access_control", "true"),
        _xml("discovery_protection_kind", "ENCRYPT"),
        _xml("liveliness_protection_kind", "ENCRYPT"),
        _xml("rtps_protection_kind", "SIGN"),
        _xml("topic_access_rules", _xml("topic_rule", topic)),
    )
    return HEAD + f'governance.xsd">\n{_xml("domain_access_rules", rule)}</dds>\n'


def _permissions(name: str, rights: Rights, domain_id: int, signer: _Signer) -> str:
    """What an enclave may do in one domain, until its certificate ends."""

    def rule(verb: str, wanted: Iterable[str]) -> str:
        return _xml(verb, _xml("topics", *(_xml("topic", escape(n)) for n in sorted(wanted))))

    when = "%Y-%m-%dT%H:%M:%S"
    grant = (
        _xml("subject_name", f"CN={escape(name)}"),
        _xml(
            "validity",
            _xml("not_before", signer.begins.strftime(when)),
            _xml("not_after", signer.ends.strftime(when)),
        ),
        _xml(
            "allow_rule",
            _xml("domains", _xml("id", str(domain_id))),
            rule("publish", rights.publish),
            rule("subscribe", rights.subscribe),
        ),
        _xml("default", "DENY"),
    )
    inner = f'<grant name="{escape(name)}">\n{"".join(grant)}</grant>\n'
    return HEAD + f'permissions.xsd">\n{_xml("permissions", inner)}</dds>\n'


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
