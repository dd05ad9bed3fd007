"""What this shell and machine contribute to the safety of an arm's graph: domain, discovery, DDS.

No rclpy in this module. Each check returns status, text and fix, as those of
`robot_rl.system.machine` do. "fail" is for surroundings in which a run cannot be safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robot_rl.ros.graph import (
    CONTROL_PROFILE,
    IMAGE_PROFILE,
    MIDDLEWARE,
    PEERS_VARIABLE,
    PROFILE_VARIABLE,
    RANGE_VARIABLE,
    SAFE_DOMAINS,
    is_local_by_profile,
)
from robot_rl.system.machine import Checked


def domain(domain_id: int, env: Mapping[str, str]) -> Checked:
    """The ROS domain of the run, and that of the shell, from which a driver may be started."""
    shell = env.get("ROS_DOMAIN_ID", "")
    if shell not in ("", str(domain_id)):
        return (
            "warn",
            f"the run is in domain {domain_id}, this shell in {shell}: what is started here is "
            "not heard there",
            f"export ROS_DOMAIN_ID={domain_id}, or ros.domain_id={shell}",
        )
    fix = "ros.domain_id=42, and export ROS_DOMAIN_ID=42 before the driver is started"
    if domain_id == 0:
        return "warn", "domain 0, in which every ROS 2 is that nobody has told otherwise", fix
    if domain_id not in SAFE_DOMAINS:
        text = f"domain {domain_id}, whose ports Linux gives to any program"
        return "warn", text, f"a domain of 1 to {SAFE_DOMAINS[-1]}: {fix}"
    return "ok", f"domain {domain_id}", ""


def discovery(domain_id: int, env: Mapping[str, str]) -> Checked:
    """Who else can be in the graph: whoever is, may publish targets to the arm."""
    found, peers = env.get(RANGE_VARIABLE, "LOCALHOST").upper(), env.get(PEERS_VARIABLE, "")
    keep = f"unset {RANGE_VARIABLE} {PEERS_VARIABLE}: this machine only"
    if found == "OFF" and not peers:
        return "fail", f"{RANGE_VARIABLE}=OFF: no node finds another", keep
    if is_local_by_profile(env) or (found == "LOCALHOST" and not peers):
        return "ok", "this machine only", ""
    if found in ("LOCALHOST", "OFF"):
        return "warn", f"this machine and {peers}: programs there may publish targets, too", keep
    if domain_id == 0:
        return (
            "fail",
            f"{RANGE_VARIABLE}={found} in domain 0: any ROS 2 program of the network may move the "
            "arm",
            f"{keep}; or a domain that is yours alone (ros.domain_id)",
        )
    which = f"{RANGE_VARIABLE}={found}: programs of the network in domain {domain_id}"
    return "warn", f"{which} may move the arm", keep


def dds_profile(env: Mapping[str, str]) -> Checked:
    """The settings of the middleware: ours, unless a person has chosen others."""
    middleware = env.get("RMW_IMPLEMENTATION", MIDDLEWARE)
    if middleware != MIDDLEWARE:
        text = f"{middleware}: our settings and measured times are those of Fast DDS"
        return "warn", text, f"unset RMW_IMPLEMENTATION, or set it to {MIDDLEWARE}"
    chosen = env.get(PROFILE_VARIABLE, CONTROL_PROFILE)
    if chosen in (CONTROL_PROFILE, IMAGE_PROFILE):
        return "ok", "Fast DDS with our profile", ""
    if not Path(chosen).is_file():
        text = f"{PROFILE_VARIABLE}={chosen} is no file: Fast DDS goes on with its own settings"
        return "warn", text, f"unset {PROFILE_VARIABLE}, or correct it"
    return "ok", f"Fast DDS with your own profile {chosen}", ""
