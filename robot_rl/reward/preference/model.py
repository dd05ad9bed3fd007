"""A reward learned from preferences: which of two moments is nearer to the goal?

    P(b better than a) = sigmoid(f(b) - f(a)),  f = tanh(network), an ensemble  (Bradley-Terry)
    r_t = (mean f(s_{t+1}) - 1) / 2,  in [-1, 0]

The reward is never positive: with a reward above 0, waiting near the goal would be worth more than
reaching it, which ends the episode. `train` learns the model from answers of people or of a
vision-language model; its labels, of kind `model_reward`, take the place of recorded rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.reward.model import ScoreModel
from robot_rl.reward.progress.model import Past
from robot_rl.spec import BASE, Spec
from robot_rl.store.labels import MODEL_REWARD


class PreferenceNet:
    """The network: the whole observation, except the entries of a base policy, -> E numbers."""

    def __init__(
        self,
        spec: Spec,
        encoder: EncoderConfig,
        hidden: tuple[int, ...],
        keys: tuple[str, ...] | None = None,
        *,
        members: int,
    ) -> None:
        seen = keys or tuple(k for k in spec.observation if not k.startswith(BASE))
        entries = {k: spec.observation[k] for k in seen}
        self.net = ObservationNet.of(replace(spec, observation=entries), encoder)
        self.shapes = {k: v.shape for k, v in entries.items()}
        self.encoder_config, self.hidden = encoder, hidden
        self.head = EnsembleMLP(members, (self.net.feature_size, *hidden, 1))
        self.keys = self.net.observation_keys

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors: those of the observation, and "head" [E, P]."""
        return self.net.init_observation(generator) | {"head": self.head.init(generator)}

    def score(
        self, observation: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """f [E, B] in (-1, 1) of observations with a batch axis."""
        features = self.net.look(observation, tensors)
        return torch.tanh(self.head(features, tensors["head"])[..., 0])


@dataclass(frozen=True)
class PreferenceModel(ScoreModel):
    """A trained ensemble. members: E, how many networks it has."""

    kind = "preference"
    title = "reward learned from preferences"
    made_by = "robot-rl reward prefer RUN"
    net_type, net_fields = PreferenceNet, ("members",)
    label = MODEL_REWARD
    needs_past = False

    members: int = 3

    @torch.no_grad()
    def curve(
        self, observation: Mapping[str, NDArray], past: Past | None = None
    ) -> NDArray[np.float64]:
        """Rewards [T] for arriving in each of T frames."""
        assert isinstance(self.net, PreferenceNet)
        f = self.net.score(observation, self.tensors)
        return ((f.mean(0) - 1.0) / 2.0).double().numpy()
