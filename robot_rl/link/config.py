"""Settings of the link, the same on both ends: where, how big, how often."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar

from robot_rl.config.registry import register

WILDCARDS = ("", "*", "0.0.0.0", "::")
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@register("link", "local")
@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Where actor and learner meet, and the bounds of what they exchange."""

    paired: ClassVar[bool] = False  # True: the learner's machine is paired with the robot's
    host: str = "127.0.0.1"  # the learner's address, on both ends; never a wildcard
    port: int = 5597  # unassigned by IANA; 0 lets the learner pick a free one
    key_folder: str | None = None  # None: keys are made in the run folder, loopback only
    actor_key: str = (
        "actor"  # name of the actor's key pair; `robot-rl keys --actors left`: actor-left
    )
    max_message_bytes: int = 16 << 20  # to the learner: a batch, or one row of ten 720p images
    max_weights_bytes: int = 256 << 20  # to the actor: a 60 M parameter policy in float32
    batch_bytes: int = 4 << 20  # one batch is in flight: 4 MB per round trip, 40 MB/s at 100 ms
    batch_rows: int = 512
    poll_s: float = 0.02  # how soon a committed row leaves; a fifth of a 10 Hz control period
    weights_period_s: float = 0.5  # 5 control ticks: staleness is dominated by training itself
    status_period_s: float = 0.1  # a simulated clock waits for what a status says; 100 bytes
    reply_timeout_s: float = 5.0  # a learner that compiles or saves may be silent for seconds
    backoff_max_s: float = 5.0  # a restarted learner is found within 10 s
    # What the actor's store keeps of what the learner has, in GB; the oldest practice beyond it is
    # removed. 20 GB of two 128x128 cameras are the 200,000 steps of a full replay. None: everything
    keep_gb: float | None = 20.0
    keep_episodes: int = 20  # the newest, whatever keep_gb says: the running one, and a review
    if_removed: str = "refuse"  # a learner that lacks removed rows; "go_on": it gets what is left

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.host in WILDCARDS:
            raise ValueError("host must name one interface; a wildcard opens every network")
        if not self.actor_key.startswith("actor") or "/" in self.actor_key:
            raise ValueError("actor_key is 'actor' or 'actor-NAME', as robot-rl keys writes it")
        if self.actor_key != "actor" and self.key_folder is None and not self.paired:
            raise ValueError(f"actor_key={self.actor_key} needs the key_folder that holds its pair")
        if not 0 <= self.port <= 65535:
            raise ValueError("port must be in 0..65535")
        if not 0 < self.batch_bytes <= self.max_message_bytes // 2:
            raise ValueError("batch_bytes must be positive and at most half of max_message_bytes")
        if not 0 < self.batch_rows <= 4096 or self.max_weights_bytes <= 0:
            raise ValueError("batch_rows must be in 1..4096 and max_weights_bytes positive")
        periods = (self.poll_s, self.weights_period_s, self.status_period_s)
        if min(*periods, self.reply_timeout_s, self.backoff_max_s) <= 0:
            raise ValueError("periods and time-outs must be positive")
        if (self.keep_gb is not None and not 0 <= self.keep_gb < 1e6) or self.keep_episodes < 1:
            raise ValueError("keep_gb must be null or in 0..1e6, keep_episodes at least 1")
        if self.if_removed not in ("refuse", "go_on"):
            raise ValueError("if_removed must be refuse or go_on")

    @property
    def endpoint(self) -> str:
        """The ZeroMQ address that this side binds or connects to."""
        return f"tcp://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True when no other machine can reach `host`."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@register("link", "remote")
@dataclass(frozen=True, kw_only=True)
class RemoteLinkConfig(LinkConfig):
    """The learner runs on another machine, which is paired with the robot's (docs/two_machines.md).

    Keys are settled by the pairing, and lie in the run folder of each machine.
    """

    paired: ClassVar[bool] = True
    host: str = ""  # the learner's machine, as the robot reaches it: IPv4 address or name

    def __post_init__(self) -> None:
        """Check what the base class checks, and that one address fits both machines."""
        if not self.host:
            raise ValueError(
                "link=remote needs link.host=ADDRESS: the learner's machine as the robot reaches it"
                " (`hostname -I` there shows its addresses)"
            )
        super().__post_init__()
        if not HOST.fullmatch(self.host):
            raise ValueError(f"host must be an IPv4 address or a host name, got {self.host!r}")
        if self.port == 0:
            raise ValueError("port must be one that the robot can know before: not 0")
        if self.key_folder is not None:
            raise ValueError("link=remote settles the keys itself: leave link.key_folder out")
