"""Learning from cameras: shifts, encoders, and who trains them."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from robot_rl.bench.learner import made_up_rows, made_up_spec
from robot_rl.config.registry import build
from robot_rl.errors import CheckpointError, ConfigError, SetupError, SpecError
from robot_rl.learn.algos import BcConfig, HilSerlConfig
from robot_rl.learn.algos.hil_serl import HilSerl
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.learn.replay import Batch, Replay
from robot_rl.nets.encoder import Encoder, EncoderConfig, random_shift
from robot_rl.nets.trunks import SMALLEST, TRUNKS
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from tests.support.point_mass import FakeStore

PX = 32
SHAPES = {"image/front": (PX, PX, 3), "image/wrist": (PX, PX, 3)}
VIT = "timm/vit_tiny_patch16_224"
TINY = EncoderConfig(channels=(8, 16), latent=8)
CONFIG = HilSerlConfig(hidden=(16,), batch_size=8, encoder=TINY, precision="float32")


def spec(gripper: bool = True, state: bool = True, dtype: str = "uint8") -> Spec:
    images = {k: TensorSpec(v, dtype) for k, v in SHAPES.items()}
    states = {"state": TensorSpec((3,), "float32")} if state else {}
    return Spec("fake", 10.0, {**states, **images}, ActionSpec(0.01, 0.1, gripper))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Sampler:
    """Random transitions with random pictures."""

    def __init__(self, action_size: int = 7, state: bool = True) -> None:
        self.rng, self.size, self.state = np.random.default_rng(0), action_size, state

    def observation(self, n: int) -> dict[str, np.ndarray]:
        draw = {k: self.rng.integers(0, 256, (n, *v), np.uint8) for k, v in SHAPES.items()}
        state = {"state": self.rng.normal(size=(n, 3)).astype(np.float32)} if self.state else {}
        return {**state, **draw}

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        n, zero = batch_size, np.zeros(batch_size, np.float32)
        return Batch(
            observation=self.observation(n),
            action=self.rng.uniform(-1, 1, (n, self.size)).astype(np.float32),
            reward=self.rng.uniform(0, 1, n).astype(np.float32),
            next_observation=self.observation(n),
            mask=zero + 1,
            human=np.arange(n) % 2 == 0,
            toggle=zero,
            steps=zero + 1,
            return_to_go=zero,
            before_takeover=zero,
        )


def test_networks_look_at_the_cameras_that_they_are_told_to() -> None:
    seen = {c: replace(TINY, cameras=c) for c in (None, ("wrist",), ())}
    nets = {c: HilSerlConfig(encoder=e).net(spec(), False) for c, e in seen.items()}
    everything = nets[None].observation_keys
    assert nets["wrist",].observation_keys == tuple(k for k in everything if k != "image/front")
    assert nets[()].observation_keys == ("state",)
    assert nets[()].encoder is None


def test_a_camera_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SpecError, match="did you mean 'wrist'"):
        HilSerlConfig(encoder=replace(TINY, cameras=("wirst",))).net(spec(), False)
    with pytest.raises(SpecError, match="leaves nothing to see"):
        HilSerlConfig(encoder=replace(TINY, cameras=())).net(spec(state=False), False)


def test_each_image_is_shifted_by_its_own_offset_and_edges_repeat() -> None:
    image = torch.arange(64 * 10 * 10 * 3).view(64, 10, 10, 3).remainder(251).to(torch.uint8)
    moved = random_shift(image, 2, generator())
    padded = torch.nn.functional.pad(
        image.permute(0, 3, 1, 2).float(), (2, 2, 2, 2), mode="replicate"
    ).permute(0, 2, 3, 1)
    found = set()
    for before, after in zip(padded, moved.float(), strict=True):
        offsets = [
            (dy, dx)
            for dy in range(5)
            for dx in range(5)
            if torch.equal(before[dy : dy + 10, dx : dx + 10], after)
        ]
        assert len(offsets) == 1
        found.add(offsets[0])
    assert len(found) > 15 and moved.dtype is torch.uint8
    assert torch.equal(random_shift(image, 0, generator()), image)


@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(PX, PX), (24, 40)])
def test_encoders_are_pure_functions_of_images_and_parameters(
    trunk: str, shared: bool, size: tuple[int, int]
) -> None:
    config = EncoderConfig(trunk=trunk, channels=(8, 16), latent=6, shared=shared)
    shapes = dict.fromkeys(SHAPES, (*size, 3))
    encoder = Encoder(config, shapes)
    flat = encoder.init(generator())
    assert torch.equal(flat, encoder.init(generator())) and flat.shape == (encoder.parameters,)
    draw = generator()
    images = {
        k: torch.randint(0, 256, (4, *v), dtype=torch.uint8, generator=draw)
        for k, v in shapes.items()
    }
    features = encoder(images, flat)
    assert features.shape == (4, encoder.size) and features.dtype is torch.float32
    assert features.std(0).mean() > 1e-2  # different pictures, different features
    torch.testing.assert_close(features, encoder(images, flat))
    one = encoder({k: v[1:2] for k, v in images.items()}, flat)
    torch.testing.assert_close(one, features[1:2], atol=1e-4, rtol=1e-3)  # no batch statistics
    per_camera = Encoder(replace(config, shared=False), shapes).parameters
    assert encoder.parameters == (per_camera // 2 if shared else per_camera)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_an_image_smaller_than_a_trunks_kernels_is_named(trunk: str) -> None:
    least = SMALLEST.get(trunk, 1)
    config = EncoderConfig(trunk=trunk, channels=(8, 16), latent=6)
    assert Encoder(config, {"image/front": (least, 40, 3)}).parameters
    with pytest.raises(ConfigError, match="'image/front' is too small") as caught:
        Encoder(config, {"image/front": (40, least - 1, 3)})
    assert f"{least} x {least}" in caught.value.expected and f"x {least - 1}" in caught.value.got


@pytest.fixture(scope="module")
def vision() -> Iterator[None]:
    """torchvision and timm, also where torchvision's wheel was made for another build of torch.

    Then its own operators (box suppression) are missing, which no feature map needs.
    """
    libraries = []
    for _ in range(5):
        try:
            importlib.import_module("torchvision")
            break
        except ImportError:
            pytest.skip("needs torchvision and timm (pip install 'robot-rl[vision]')")
        except RuntimeError as error:
            name = str(error).split("::")[1].split()[0]
            libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
            libraries[-1].define(f"{name}(Tensor x) -> Tensor")
            for module in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
                del sys.modules[module]
    yield
    libraries.clear()


@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize(
    "trunk",
    ["torchvision/resnet18", "torchvision/mobilenet_v3_small", "timm/convnext_atto", VIT],
)
def test_a_trunk_by_name_keeps_its_batch_statistics(trunk: str, tmp_path: Path) -> None:
    shapes = {"image/front": (64, 64, 3)}
    library, name = trunk.split("/")
    module = importlib.import_module(library + (".models" if library == "torchvision" else ""))
    size = {"img_size": 64} if trunk == VIT else {}
    model = (module.get_model if library == "torchvision" else module.create_model)(name, **size)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.01, 0.1, generator=generator())
    save_file(model.state_dict(), path := tmp_path / "model.safetensors")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = EncoderConfig(trunk=trunk, latent=6, weights=str(path), weights_sha256=digest)
    encoder = Encoder(config, shapes)
    flat = encoder.init(generator()).requires_grad_()
    images = {k: torch.randint(0, 256, (4, *v), dtype=torch.uint8) for k, v in shapes.items()}
    features = encoder(images, flat)
    one = encoder({k: v[1:2] for k, v in images.items()}, flat)
    torch.testing.assert_close(one, features[1:2], atol=1e-4, rtol=1e-3)
    (grad,) = torch.autograd.grad(features.square().sum(), flat)
    views, grads = encoder._views(flat), encoder._views(grad)
    first = next(iter(model.state_dict()))
    torch.testing.assert_close(
        views[f"cameras.0.trunk.model.{first}"].detach(), model.state_dict()[first]
    )
    assert float(grads[f"cameras.0.trunk.model.{first}"].abs().sum()) > 0
    assert not any(v.abs().sum() for k, v in grads.items() if "running" in k)


@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize("trunk", ["torchvision/resnet81", "timm/resnet81", VIT])
def test_a_trunk_that_cannot_be_says_why(trunk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"image/front": (64, 64, 4)}  # no network of theirs takes four channels
    with pytest.raises(ConfigError, match="resnet81" if "81" in trunk else "three channels"):
        Encoder(EncoderConfig(trunk=trunk), shapes)
    with pytest.raises(ValueError, match="trunk must be one of"):
        EncoderConfig(trunk="torch/resnet18")
    monkeypatch.setitem(sys.modules, trunk.split("/", maxsplit=1)[0], None)
    with pytest.raises(SetupError, match="vision"):
        Encoder(EncoderConfig(trunk=trunk), shapes)


def test_a_frozen_trunk_gets_no_gradient_but_its_head_does() -> None:
    encoder = Encoder(replace(TINY, frozen=True), SHAPES)
    flat = encoder.init(generator()).requires_grad_()
    images = {k: torch.randint(0, 256, (4, *v), dtype=torch.uint8) for k, v in SHAPES.items()}
    (grad,) = torch.autograd.grad(encoder(images, flat).square().sum(), flat)
    touched = grad != 0
    assert 0 < int(touched.sum()) < encoder.parameters


def test_a_frozen_trunk_looks_once_and_says_the_same() -> None:
    encoder = Encoder(replace(TINY, frozen=True), SHAPES)
    flat = encoder.init(generator())
    images = {k: torch.randint(0, 256, (4, *v), dtype=torch.uint8) for k, v in SHAPES.items()}
    tokens = encoder.look(images, flat)
    assert all(v.dtype is torch.float32 and v.shape[:2] == (4, 16) for v in tokens.values())
    torch.testing.assert_close(encoder(tokens, flat), encoder(images, flat))
    algo = learner(replace(CONFIG, encoder=replace(TINY, frozen=True)))
    before = algo.actor["encoder"].detach().clone()
    algo.update(Sampler())
    moved = algo.actor["encoder"].detach() != before
    assert 0 < int(moved.sum()) < len(before)


@pytest.mark.parametrize("taco_weight", [0.0, 1.0])
def test_weight_decay_leaves_a_frozen_trunk_as_it_is(taco_weight: float) -> None:
    config = replace(
        CONFIG, encoder=replace(TINY, frozen=True), critic_weight_decay=1.0, taco_weight=taco_weight
    )
    algo, encoder = learner(config), Encoder(config.encoder, SHAPES)
    before = algo.actor["encoder"].detach().clone()
    for _ in range(5):
        algo.update(Sampler())
    for tensor in (algo.actor["encoder"].detach(), algo.actor_state()["encoder"]):
        now, was = encoder._views(tensor), encoder._views(before)
        assert all(torch.equal(now[k], v) == (".trunk." in k) for k, v in was.items())


@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize("frozen", [True, False])
def test_weight_decay_leaves_batch_statistics_as_they_are(frozen: bool) -> None:
    seen = EncoderConfig(trunk="torchvision/resnet18", latent=6, frozen=frozen, cameras=("wrist",))
    algo = learner(replace(CONFIG, encoder=seen, critic_weight_decay=1.0))
    eyes = algo.net.encoder
    assert eyes is not None
    before = algo.actor["encoder"].detach().clone()
    for _ in range(2):
        algo.update(Sampler())
    now = eyes._views(algo.actor["encoder"].detach())
    for key, was in eyes._views(before).items():
        fixed = "running" in key or (frozen and ".trunk." in key)
        assert not fixed or torch.equal(now[key], was), key
    assert not torch.equal(algo.actor["encoder"].detach(), before)


def test_behind_a_frozen_trunk_the_replay_keeps_features_instead_of_images() -> None:
    encoder = replace(TINY, frozen=True, shift_px=0)
    config = replace(CONFIG, encoder=encoder)
    algo = learner(config)
    digest = algo.net.digest(algo.actor_state())
    assert digest is not None
    assert learner(replace(CONFIG, encoder=replace(encoder, shift_px=2))).net.digest({}) is None
    rows = made_up_rows(made_up_spec(2, PX), episodes=2)
    space = made_up_spec(2, PX)
    algo = config.make(space, 0)
    digest = algo.net.digest(algo.actor_state())
    kept = Replay(space, 200, algo.net.observation_keys, digest=digest)
    raw = Replay(space, 200, algo.net.observation_keys)
    for replay in (kept, raw):
        replay.ingest(rows)
    one, two = (r.sample(16, 0.5, np.random.default_rng(0)) for r in (kept, raw))
    assert one.observation["image/0"].dtype == np.float16
    torch.testing.assert_close(
        algo.see(algo.transitions(one)).now.features,
        algo.see(algo.transitions(two)).now.features,
        atol=5e-3,
        rtol=0,
    )
    algo.update(
        lambda batch_size, demo_fraction: kept.sample(
            batch_size, demo_fraction, np.random.default_rng(0)
        )
    )


def test_a_trunk_is_read_from_a_file_with_the_right_hash(tmp_path: Path) -> None:
    source = Encoder(replace(TINY, shared=True), SHAPES)
    views = source._views(source.init(generator(5)))
    prefix = "cameras.0.trunk."
    trunk = {k.removeprefix(prefix): v for k, v in views.items() if k.startswith(prefix)}
    path = tmp_path / "trunk.safetensors"
    save_file(trunk, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = replace(TINY, weights=str(path), weights_sha256=digest)
    encoder = Encoder(config, SHAPES)
    loaded = encoder._views(encoder.init(generator()))
    for camera in (0, 1):
        for name, value in trunk.items():
            assert torch.equal(loaded[f"cameras.{camera}.trunk.{name}"], value)
    for wrong, message in (
        (replace(config, weights_sha256="0" * 64), "not those that were meant"),
        (replace(config, channels=(8, 32)), "another trunk"),
        (replace(config, weights=str(tmp_path / "none")), "cannot be read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            Encoder(wrong, SHAPES).init(generator())
    with pytest.raises(ConfigError, match="belong together"):
        build(EncoderConfig, {"weights": str(path)})


def learner(config: HilSerlConfig = CONFIG, seed: int = 0) -> HilSerl:
    return config.make(spec(), seed)


def test_the_critic_trains_the_encoder_and_the_actor_does_not() -> None:
    algo = learner()
    batch = algo.see(algo.transitions(Sampler()(8, 0.5)))
    encoder = algo.actor["encoder"]
    (critic_grad,) = torch.autograd.grad(algo.critic_loss(batch)[0], encoder, retain_graph=True)
    (gripper_grad,) = torch.autograd.grad(algo.gripper_loss(batch)[0], encoder)
    assert critic_grad.abs().sum() > 0 and gripper_grad.abs().sum() > 0
    before = encoder.detach().clone()
    seen = batch.now._replace(features=batch.now.features.detach())
    algo.actor_step(batch._replace(now=seen))
    assert torch.equal(before, encoder)


def test_the_slow_encoder_lags_by_tau_and_judges_the_next_state() -> None:
    algo = learner()
    before = algo.slow["encoder"].clone()
    algo.critic_step(algo.see(algo.transitions(Sampler()(8, 0.5))))
    now = algo.actor["encoder"].detach()
    assert not torch.equal(now, before)
    torch.testing.assert_close(algo.slow["encoder"], before + CONFIG.tau * (now - before))
    algo.slow["encoder"].add_(1.0)  # only s' may change
    batch = algo.transitions(Sampler()(8, 0.5))
    seen = algo.see(batch)
    want = algo.net.features(batch.now.features, batch.now.images, algo.actor["encoder"])
    torch.testing.assert_close(seen.now.features, want)
    want = algo.net.features(batch.then.features, batch.then.images, algo.slow["encoder"])
    torch.testing.assert_close(seen.then.features, want)


def test_training_goes_on_bit_for_bit_after_save_and_load() -> None:
    one, sample = learner(), Sampler()
    for _ in range(3):
        one.update(sample)
    two = learner(seed=7)
    two.load_state_dict(one.state_dict())
    for algo in (one, two):
        fresh = Sampler()
        for _ in range(3):
            algo.update(fresh)
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key]), key


def test_the_robot_gets_the_encoder_and_acts_as_the_learner_does() -> None:
    algo = learner()
    algo.update(Sampler())
    net = CONFIG.make_actor(spec())
    observation = Sampler().observation(5)
    got = net.act(observation, algo.actor_state(), deterministic=True)
    torch.testing.assert_close(got, algo.act(observation, True))
    blind = {k: np.zeros_like(v) if "image" in k else v for k, v in observation.items()}
    assert not torch.equal(got, net.act(blind, algo.actor_state(), deterministic=True))


def test_pictures_alone_are_enough() -> None:
    algo = CONFIG.make(spec(gripper=False, state=False), 0)
    metrics = algo.update(Sampler(6, state=False))
    assert torch.isfinite(metrics["critic/loss"])


def dot(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures with a white dot, and where it is in [-1, 1]."""
    where = rng.integers(4, PX - 4, (n, 2))
    image = np.zeros((n, PX, PX, 3), np.uint8)
    for picture, (y, x) in zip(image, where, strict=True):
        picture[y - 2 : y + 2, x - 2 : x + 2] = 255
    return image, ((where - PX / 2) / (PX / 2)).astype(np.float32)


@pytest.mark.parametrize("trunk", ["cnn", "vit"])
def test_cloning_finds_out_where_things_are_in_the_picture(trunk: str) -> None:
    rng = np.random.default_rng(0)
    space = {"image/front": TensorSpec((PX, PX, 3), "uint8")}
    config = BcConfig(
        hidden=(32,),
        batch_size=64,
        learning_rate=1e-3,
        encoder=EncoderConfig(trunk=trunk, channels=(8, 16), latent=16, shift_px=0),
    )
    algo = config.make(Spec("dot", 10.0, space, ActionSpec(0.01, 0.1, False)), 0)

    def sample(n: int, _: float) -> Batch:
        image, where = dot(n, rng)
        zero = np.zeros(n, np.float32)
        action = np.concatenate((where, np.zeros((n, 4), np.float32)), 1)
        seen = {"image/front": image}
        return Batch(seen, action, zero, seen, zero, zero > -1, zero, zero + 1, zero, zero > 0)

    for _ in range(400):
        algo.update(sample)
    image, where = dot(64, rng)
    error: Tensor = algo.act({"image/front": image}, True)[:, :2] - torch.from_numpy(where)
    assert float(error.abs().mean()) < 0.1  # 1.6 pixels; guessing the middle gives 0.38


def test_bad_input_is_named() -> None:
    with pytest.raises(SpecError, match="uint8"):
        CONFIG.make(spec(dtype="float32"), 0)
    with pytest.raises(ConfigError, match="trunk"):
        build(EncoderConfig, {"trunk": "resnet50"})
    with pytest.raises(ConfigError, match="embeddings"):
        build(EncoderConfig, {"embeddings": 0})


@pytest.mark.parametrize("change", [{"prefetch": False}, {"frames": "disk"}, {"frames": "device"}])
def test_where_frames_lie_and_when_they_are_drawn_changes_nothing(
    change: dict[str, object], tmp_path: Path
) -> None:
    space, store = made_up_spec(2, PX), FakeStore()
    store.rows = made_up_rows(space, episodes=3)
    states = []
    for name, more in (("one", {}), ("other", change)):
        setup = LearnerConfig(min_steps=1, capacity=400, checkpoint_updates=0, **more)
        learner = Learner(setup, CONFIG, space, store, run_dir=tmp_path / name, seed=0)
        learner.ingest()
        for count in (2, 8, 6):
            learner.update(count)
        states.append(learner.algo.state_dict() | {"rng": torch.tensor(learner._rng.random())})
        learner.close()
    assert all(torch.equal(v, states[1][k]) for k, v in states[0].items())
