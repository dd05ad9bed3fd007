"""What heads that run the base policy themselves, also in the learner, have in common.

The base has to be a flow policy of `algo=bc_flow` on this machine (`base=flow`); its tensors travel
with the head's. `dsrl` and `zprl` choose what the base samples from; `qc`, `pa_rl` and `expo`
choose among its samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch

from robot_rl.errors import ConfigError
from robot_rl.learn.algos.chunked import OnBase, OnBaseConfig
from robot_rl.nets.chunk import OF_BASE, FlowHead
from robot_rl.policy.base.own import FlowBase, FlowBaseConfig
from robot_rl.policy.base.spec import BaseConfig
from robot_rl.spec import Spec


@dataclass(frozen=True, kw_only=True)
class OnFlowConfig(OnBaseConfig):
    """Settings, and the base policy, which `on` adds."""

    ramp_updates: int = 1000
    flow: FlowBase | None = field(default=None, init=False, repr=False, compare=False)

    def on(self, base: BaseConfig | None, spec: Spec, seed: int) -> Self:
        """Return the same config with the base that its algorithm runs.

        Raises:
            ConfigError: there is no base, this process cannot run it, or it does not fit.
            CheckpointError: the base was made for something else.
        """
        if not isinstance(base, FlowBaseConfig):
            raise ConfigError(
                "this head runs the base policy in the learner",
                expected="a base that lies here: base=flow base.run=RUN (a run of algo=bc_flow)",
                got="no base" if base is None else type(base).__name__,
                fix="name one; or correct a served base: algo=resfit, algo=policy_decorator",
            )
        return self.running(base.open(spec, seed))

    def running(self, base: FlowBase) -> Self:
        """Return the same config with a base that is already open.

        Raises:
            ConfigError: the base's chunks are too short.
        """
        if base.net.chunk < self.chunk:
            raise ConfigError(
                "the base's chunks are shorter than the head's",
                expected=f"algo.chunk of at most {base.net.chunk}",
                got=f"algo.chunk={self.chunk}",
                fix="decide fewer actions at once, or train the base with a longer algo.chunk",
            )
        bound = replace(self)
        object.__setattr__(bound, "flow", base)
        return bound

    @property
    def opened(self) -> FlowBase:
        """The base that `on` or `running` has added."""
        assert self.flow is not None, "OnFlowConfig.on has not been called"
        return self.flow


class OnFlow(OnBase):
    """`OnBase`, with the base's tensors among the actor's."""

    net: FlowHead  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, config: OnFlowConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        with torch.no_grad():
            for name, tensor in config.opened.tensors.items():
                self.actor[OF_BASE + name].copy_(tensor)
