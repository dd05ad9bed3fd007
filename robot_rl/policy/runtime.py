"""The policy on the robot: weights in, actions out. The only torch code on the actor's side."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.config.run_folder import POLICY
from robot_rl.errors import CheckpointError, ConfigError, LinkError, SpecError
from robot_rl.nets.noise import NoiseNet
from robot_rl.nets.tensor_file import read_tensors
from robot_rl.spec import Spec
from robot_rl.system import plain_json
from robot_rl.system.files import replace_file
from robot_rl.types import Observation, Weights

if TYPE_CHECKING:
    from robot_rl.policy.base.schedule import Planner

log = logging.getLogger(__name__)


class DrivingNet(Protocol):
    """What the policy runtime needs of a network: `nets.actor.ActorNet`, `nets.flow.FlowNet`."""

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """The entries of the observation that the network looks at."""
        ...

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors."""
        ...

    def act(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None = None,
        gripper_epsilon: float = 0.0,
    ) -> Tensor:
        """Actions [B, A], or those of the next h steps [B, h, A]."""
        ...


class ActorMaker(Protocol):
    """Config of an algorithm, as far as the robot needs it."""

    def make_actor(self, spec: Spec) -> DrivingNet:
        """The network that the weights are for."""
        ...


@runtime_checkable
class ExploresGripper(Protocol):
    """A config whose policy tries the gripper at random now and then."""

    @property
    def gripper_epsilon(self) -> float:
        """How often: a share of the ticks."""
        ...


class PolicyRuntime:
    """Runs the newest weights, one observation at a time.

    Before any weights the action is zero: the arm stands still and the gripper keeps its width;
    `version` is -1 then. (A learner publishes its untrained policy as version 0.)

    A network may propose several steps at once; then they are carried out before it is asked again.
    Weights that once propose an action that is not finite, or with which the network raises, are
    frozen: the episode ends, and none begins before others are loaded.

    Args:
        algo: the config of the algorithm that made the weights.
        spec: of the run.
        seed: of the exploration noise.
        base: schedule of the base policy that the network builds on.
    """

    def __init__(
        self, algo: ActorMaker, spec: Spec, seed: int = 0, base: Planner | None = None
    ) -> None:
        self._spec, self._net, self._base = spec, algo.make_actor(spec), base
        _check_unprivileged(self._net, spec)
        self._plan: deque[NDArray[np.float32]] = deque()
        self._epsilon = algo.gripper_epsilon if isinstance(algo, ExploresGripper) else 0.0
        self._generator = torch.Generator().manual_seed(seed)
        self._tensors = self._net.init(torch.Generator().manual_seed(0))
        self._version = -1
        self.weights: Weights | None = None  # the ones in use, for `save_policy`
        self._deterministic = False
        self.refused: NDArray[np.float32] | None = None  # the action that froze these weights
        self._did = ""  # what froze them, in words
        if base is not None and isinstance(self._net, NoiseNet):
            base.choose = self._choose

    @property
    def version(self) -> int:
        """Version of the weights in use, -1 before any."""
        return self._version

    def load(self, weights: Weights) -> None:
        """Adopt weights; on any error the ones in use stay.

        Raises:
            LinkError: the bytes are not what the learner sent.
            SpecError: the weights belong to another network, or hold NaN.
        """
        tensors = tensors_of(weights, self._tensors)
        self._tensors, self._version, self.weights = tensors, weights.version, weights
        self.refused = None

    @property
    def problem(self) -> str:
        """Why there is no action to propose, "" when there is."""
        return self._frozen or ("" if self._base is None else self._base.problem)

    def ready(self) -> str:
        """Why no episode may begin, "" when one may. May take seconds."""
        return self._frozen or ("" if self._base is None else self._base.ready())

    @property
    def _frozen(self) -> str:
        """Why these weights drive no more, "" when they do: others have to come."""
        if self.refused is None:
            return ""
        return f"weights {self._version} {self._did}"

    def _freeze(self, action: NDArray[np.float32], did: str) -> None:
        """These weights drive no more."""
        self.refused, self._did = action, did

    def _raised(self, error: Exception) -> NDArray[np.float32]:
        """Freeze the weights; an action that no gate lets pass."""
        log.error("the policy raised", exc_info=error)
        nothing = np.full(self._spec.action.size, np.nan, np.float32)
        self._freeze(nothing, f"raised {type(error).__name__}: {str(error)[:200]}")
        return nothing

    def close(self) -> None:
        """Close the schedule of the base policy, if there is one."""
        if self._base is not None:
            self._base.close()

    def begin_episode(self, deterministic: bool = False) -> None:
        """Forget the last episode. deterministic: how the noise of a base policy is decided."""
        self._plan.clear()
        self._deterministic = deterministic
        if self._base is not None:
            self._base.begin_episode()

    def interrupt(self) -> None:
        """Drop what was planned: somebody else drives."""
        self._plan.clear()
        if self._base is not None:
            self._base.interrupt()

    def annotate(self, observation: Observation) -> Observation:
        """The observation to record, with what the base would do from here. Call once per tick."""
        return observation if self._base is None else observation | self._base.annotate(observation)

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """Action float32 [A] in [-1, 1] for one observation without batch axis."""
        if self._version < 0:
            return np.zeros(self._spec.action.size, np.float32)
        if not self._plan:
            try:
                self._plan.extend(self._proposed(observation, deterministic))
            except ConfigError:  # wrong from the beginning, and says how to mend it
                raise
            except Exception as error:  # whatever torch raises: the loop goes on, and holds
                return self._raised(error)
        action = self._plan.popleft()
        if not np.isfinite(action).all():
            self._freeze(action, "proposed an action that is not finite")
        return action

    def _proposed(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """Actions [h, A] of the next steps."""
        proposed = self._net.act(
            {k: observation[k][None] for k in self._net.observation_keys},
            self._tensors,
            deterministic=deterministic,
            generator=self._generator,
            gripper_epsilon=self._epsilon,
        )[0].numpy()
        return proposed[None] if proposed.ndim == 1 else proposed

    def _choose(self, observation: Observation) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Decision [d] and noise for the base's next chunk; noise of shape [0] = the base's own."""
        assert isinstance(self._net, NoiseNet) and self._base is not None
        if self._version >= 0:
            try:
                return self._chosen(self._net, self._base, observation)
            except ConfigError:  # as in `act`
                raise
            except Exception as error:
                self._raised(error)
        return np.zeros(self._net.decision_size, np.float32), np.zeros(0, np.float32)

    def _chosen(
        self, net: NoiseNet, base: Planner, observation: Observation
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        decision = net.decide(
            {k: observation[k][None] for k in net.look_keys},
            self._tensors,
            deterministic=self._deterministic,
            generator=self._generator,
        )
        if decision is None:
            return np.zeros(net.decision_size, np.float32), np.zeros(0, np.float32)
        noise = net.noise(decision, base.base.spec.noise_shape or ())
        return decision[0].numpy(), noise[0].numpy()


def tensors_of(weights: Weights, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of weights, with the names and shapes of `like`.

    Raises:
        LinkError: the bytes are not what the learner sent.
        SpecError: they belong to another network, or hold NaN.
    """
    got = hashlib.sha256(weights.data).hexdigest()
    if got != weights.sha256:
        raise LinkError(
            f"weights {weights.version} arrived damaged",
            expected=f"sha256 {weights.sha256}",
            got=got,
            fix="nothing to do: the next version replaces them",
        )
    try:
        tensors = read_tensors(weights.data)
    except ValueError as error:
        raise LinkError(
            f"weights {weights.version} cannot be read",
            expected="a safetensors image",
            got=str(error),
            fix="run the same robot-rl version on both sides",
        ) from error
    want = {k: (v.dtype, tuple(v.shape)) for k, v in like.items()}
    shapes = {k: (v.dtype, tuple(v.shape)) for k, v in tensors.items()}
    if want != shapes:
        raise SpecError(
            f"weights {weights.version} belong to another network",
            expected=str(want)[:600],
            got=str(shapes)[:600],
            fix="use the learner's algo config on the actor, hidden sizes included",
        )
    if not all(bool(torch.isfinite(v).all()) for v in tensors.values()):
        raise SpecError(
            f"weights {weights.version} hold NaN or infinity",
            expected="finite weights",
            got="non-finite values",
            fix="look at the learner's log; it never publishes such weights itself",
        )
    return tensors


def _check_unprivileged(net: DrivingNet, spec: Spec) -> None:
    """Raise `SpecError` for a network that would drive by what a robot at work does not know."""
    seen = sorted(set(net.observation_keys) & set(spec.privileged))
    if seen:
        raise SpecError(
            "the policy looks at privileged entries of the observation",
            expected="a network of what the robot itself senses: "
            + ", ".join(spec.of_policy().observation),
            got=", ".join(seen),
            fix="leave them to the critics (Spec.privileged), or observe them under another name",
        )


def save_policy(run_dir: Path, weights: Weights, spec: Spec) -> Path:
    """Write `policy.safetensors`, then its manifest, which says that the policy is there."""
    facts = {
        "version": weights.version,
        "sha256": weights.sha256,
        "spec_hash": spec.of_policy().hash,
    }
    path = run_dir / POLICY
    replace_file(path, weights.data)
    replace_file(path.with_suffix(".json"), json.dumps(facts, indent=2))
    return path


def load_policy(run_dir: Path, spec: Spec) -> Weights:
    """Read what `save_policy` wrote, for a run whose policy gets the same; critics may see more.

    Raises:
        CheckpointError: there is no policy, it is damaged, or it is made for another spec.
    """
    path = run_dir / POLICY
    try:
        facts = plain_json.loads(path.with_suffix(".json").read_text())
        weights = Weights(int(facts["version"]), str(facts["sha256"]), path.read_bytes())
        spec_hash = str(facts["spec_hash"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CheckpointError(
            f"no usable policy in {run_dir}",
            expected="policy.safetensors and policy.json, written when practice ends",
            got=f"no {Path(error.filename).name}"
            if isinstance(error, FileNotFoundError)
            else str(error),
            fix="finish the training run, or name another run folder",
        ) from error
    found, wanted = hashlib.sha256(weights.data).hexdigest(), spec.of_policy().hash
    if found != weights.sha256:
        raise CheckpointError(
            f"the policy in {run_dir} is damaged",
            expected=f"sha256 {weights.sha256}",
            got=f"sha256 {found}",
            fix="restore the file, or train again",
        )
    if spec_hash != wanted:
        raise CheckpointError(
            f"the policy in {run_dir} was made for another observation or action",
            expected=f"spec {wanted}, of this task with its settings",
            got=f"spec {spec_hash}",
            fix="name a run of the same task with the same settings: its config.yaml has them",
        )
    return weights
