"""`base=lerobot` with the real `lerobot` package: what it proposes is what LeRobot's own loop does.

    PYTHONPATH=. python tests/compat/lerobot_base.py

Needs an environment with LeRobot, and beside it what robot-rl's configuration needs (pyzmq,
msgpack, hydra-core). Policies of random weights, saved as lerobot-train saves them; nothing is
downloaded. Ends with 1 and a traceback when something does not hold.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.policies.factory import make_pre_post_processors

from robot_rl.policy.base import LeRobotConfig
from robot_rl.spec import ActionSpec, Spec, TensorSpec

A, SIZE = 7, 64
STATE, IMAGE = "observation.state", "observation.images.top"
SEEN = {
    STATE: PolicyFeature(FeatureType.STATE, (5,)),
    IMAGE: PolicyFeature(FeatureType.VISUAL, (3, SIZE, SIZE)),
}
DONE = {"action": PolicyFeature(FeatureType.ACTION, (A,))}
SPEC = Spec(
    "compat",
    10.0,
    {"state": TensorSpec((5,), "float32"), "image/front": TensorSpec((SIZE, SIZE, 3), "uint8")},
    ActionSpec(0.01, 0.1, gripper=True),
)
ACT = ACTConfig(
    input_features=SEEN,
    output_features=DONE,
    chunk_size=8,
    n_action_steps=8,
    dim_model=32,
    n_heads=2,
    dim_feedforward=64,
    n_encoder_layers=1,
    n_decoder_layers=1,
    n_vae_encoder_layers=1,
    pretrained_backbone_weights=None,
    device="cpu",
)
DIFFUSION = DiffusionConfig(
    input_features=SEEN,
    output_features=DONE,
    n_obs_steps=2,
    horizon=8,
    n_action_steps=4,
    down_dims=(16, 32),
    n_groups=8,
    diffusion_step_embed_dim=16,
    spatial_softmax_num_keypoints=4,
    num_train_timesteps=10,
    num_inference_steps=3,
    crop_shape=None,
    pretrained_backbone_weights=None,
    device="cpu",
)


def stats(rng: np.random.Generator) -> dict[str, dict[str, torch.Tensor]]:
    """Means, spreads and bounds that change something."""
    found = {}
    for name, shape in ((STATE, (5,)), (IMAGE, (3, 1, 1)), ("action", (A,))):
        mean = torch.tensor(rng.uniform(-0.3, 0.3, shape), dtype=torch.float32)
        spread = torch.tensor(rng.uniform(0.1, 0.5, shape), dtype=torch.float32)
        found[name] = {
            "mean": mean,
            "std": spread,
            "min": mean - 2 * spread,
            "max": mean + 2 * spread,
        }
    return found


def save(policy: Any, folder: Path, rng: np.random.Generator) -> tuple[Any, Any]:
    """As lerobot-train leaves a policy; returns its processors."""
    before, after = make_pre_post_processors(policy.config, dataset_stats=stats(rng))
    for part in (policy, before, after):
        part.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_backbone_weights"] = "ResNet18_Weights.IMAGENET1K_V1"  # as by default
    (folder / "config.json").write_text(json.dumps(config))
    return before, after


def main() -> int:
    """Both policies, with and without noise of ours."""
    rng = np.random.default_rng(0)
    seen = {
        "state": rng.normal(size=5).astype(np.float32),
        "image/front": rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8),
    }
    frame = {
        STATE: torch.tensor(seen["state"]),
        IMAGE: torch.tensor(seen["image/front"]).permute(2, 0, 1).float() / 255.0,
    }
    for policy in (ACTPolicy(ACT), DiffusionPolicy(DIFFUSION)):
        with tempfile.TemporaryDirectory() as name:
            before, after = save(policy.eval(), Path(name), rng)
            inputs = {STATE: "state", IMAGE: "image/front"}
            base = LeRobotConfig(path=name, inputs=inputs).open(SPEC, 0)
            noise, extra = None, {}
            if base.spec.noise_shape is not None:
                noise = rng.normal(size=base.spec.noise_shape).astype(np.float32)
                extra = {"noise": torch.tensor(noise)[None]}
            torch.manual_seed(1)
            policy.reset()
            theirs = [
                after(policy.select_action(before(dict(frame)), **extra))[0].numpy()
                for _ in range(base.spec.chunk)
            ]
            torch.manual_seed(1)
            ours = base.sample(seen, noise)
            np.testing.assert_allclose(ours, np.stack(theirs), rtol=1e-4, atol=1e-5)
            assert ours.std() > 1e-3
            words = f"{policy.name}: {len(ours)} actions agree, noise {base.spec.noise_shape}"
            sys.stdout.write(words + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
