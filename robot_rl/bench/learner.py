"""How fast the learner learns, compared with what this machine's matrix products allow.

    bench(seconds)["critics_2/updates_per_s"]

With `peer_python`, LeRobot's learner is measured beside it (`lerobot.py`).
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile
from torch.utils.flop_counter import FlopCounterMode

from robot_rl.bench.choice import some_of
from robot_rl.errors import ConfigError, SetupError
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.learner import LearnerConfig
from robot_rl.learn.replay import Batch, Replay
from robot_rl.nets.cpu import keep_freed_memory
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Frame, Outcome, Row, Step

STATE_SIZE = 30  # what the state tasks observe
EPISODES, EPISODE_STEPS = 100, 50
CAMERA_EPISODES = 20  # 100 MB of frames at 128 pixels
WARM_UP = 5  # first calls fill caches and allocate
PROFILED = 50  # updates
NAMED = 8  # operations that a profile names

STATE = TensorSpec((STATE_SIZE,), "float32")
CAMERAS = 2
CASES = {
    "critics_2": HilSerlConfig(),
    "critics_10": HilSerlConfig(critics=10, target_subset=2),
    "critics_2_float32": HilSerlConfig(precision="float32"),
    "critics_10_float32": HilSerlConfig(critics=10, target_subset=2, precision="float32"),
    "critics_2_hidden_128": HilSerlConfig(hidden=(128, 128)),
    "critics_10_hidden_128": HilSerlConfig(  # `algo=hil_serl_state`
        critics=10, target_subset=2, hidden=(128, 128), batch_size=128
    ),
}
# at least the arithmetic of LeRobot's default encoder, which is frozen, too
_FROZEN: dict[str, Any] = {"channels": (64, 128, 256), "latent": 256, "frozen": True}
CAMERA_CASES = {
    "cameras_128": (HilSerlConfig(), 128),  # what LeRobot and HIL-SERL use, at their batch of 256
    "cameras_128_frozen": (HilSerlConfig(encoder=EncoderConfig(**_FROZEN)), 128),
    "cameras_128_frozen_float32": (
        HilSerlConfig(encoder=EncoderConfig(**_FROZEN), precision="float32"),
        128,
    ),
    "cameras_128_cached": (HilSerlConfig(encoder=EncoderConfig(**_FROZEN, shift_px=0)), 128),
    "cameras_64": (  # `algo=hil_serl_pixels`
        HilSerlConfig(
            hidden=(128, 128),
            batch_size=128,
            encoder=EncoderConfig(channels=(16, 32, 64)),
            taco_weight=1.0,
        ),
        64,
    ),
}
"""name -> (config, pixels of each of two square cameras)"""


COMPARED = ("critics_2", "critics_10", "cameras_128_frozen")  # with a peer; and their `_float32`


def bench(
    seconds: float,
    *,
    threads: int = 1,
    peer_python: str = "",
    compiled: bool = False,
    device: str = "cpu",
    only: str = "",
    profile: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """Measure each case for about `seconds`; returns figure -> number.

    threads: of torch; 1 is how the learner runs beside simulator, gate and actor. peer_python: an
    interpreter with LeRobot in it, measured in the same run on the same shapes. compiled: with
    `learner.compile`. device: of the learner. only: names of cases, "" = all of them. profile: also
    which operations the time of an update goes to, on a CPU. progress: told (cases done, cases).

    Cases as in `CASES`, each with updates_per_s (gradient steps, sampling included), sample_ms (one
    batch), on a CPU floor_updates_per_s (nothing but the matrix products, at the rate of one
    256-cube) and of_floor; `act_ms`; bytes_per_step in the replay, with cameras also per raw byte
    of its frames.

    Raises:
        ConfigError: there is no case of that name, or a peer is to be measured with some cases, or
            on a GPU.
        SetupError: there is no such device.
    """
    if peer_python and (only or device != "cpu"):
        raise ConfigError(
            "a peer is measured beside all cases, and on the CPU",
            expected="--peer-python without --only and --device",
            got=f"--only {only}" if only else f"--device {device}",
            fix="leave out one of the two",
        )
    device = LearnerConfig(device=device).resolved_device
    chosen = some_of(only, [*CASES, *CAMERA_CASES], "case")
    state_cases = {k: v for k, v in CASES.items() if k in chosen}
    camera_cases = {k: v for k, v in CAMERA_CASES.items() if k in chosen}
    torch.set_num_threads(threads)
    keep_freed_memory()
    spec = made_up_spec()
    replay = Replay(spec, EPISODES * EPISODE_STEPS)
    replay.ingest(made_up_rows(spec))
    figures: dict[str, float] = {"torch_threads": float(torch.get_num_threads())}
    rates = {bf16: matmul_flops_per_s(bf16) for bf16 in (False, True)}
    cases = len(state_cases) + len(camera_cases)
    how = {"seconds": seconds, "compiled": compiled, "profile": profile}
    for done, (name, config) in enumerate(state_cases.items()):
        progress(done, cases)
        algo = config.make(spec, 0, device)
        found = _case(algo, replay, rates[config.bf16()], **how)
        figures |= {f"{name}/{k}": v for k, v in found.items()}
    for done, (name, (config, pixels)) in enumerate(camera_cases.items(), len(state_cases)):
        progress(done, cases)
        spec = made_up_spec(CAMERAS, pixels)
        algo = config.make(spec, 0, device)
        digest = algo.net.digest(algo.actor_state())
        replay = Replay(spec, CAMERA_EPISODES * EPISODE_STEPS, digest=digest)
        replay.ingest(made_up_rows(spec, CAMERA_EPISODES))
        found = _case(algo, replay, rates[config.bf16(images=True)], **how)
        figures |= {f"{name}/{k}": v for k, v in found.items()}
        raw = CAMERAS * pixels * pixels * 3
        figures[f"{name}/bytes_per_step"] = float(replay.bytes_per_step)
        figures[f"{name}/bytes_per_raw_byte"] = replay.bytes_per_step / raw
        figures[f"{name}/encoder_mflops_per_step"] = _encoder_flops(algo)[0] / 1e6
    progress(cases, cases)
    algo = CASES["critics_2"].make(made_up_spec(), 0, device)
    state = {"state": np.zeros((1, STATE_SIZE), np.float32)}
    figures["act_ms"] = 1e3 * _period_s(lambda: algo.act(state, False), min(seconds, 1.0))
    figures["replay/state_bytes_per_step"] = float(Replay(made_up_spec(), 1).bytes_per_step)
    figures["matmul_float32_gflops"] = rates[False] / 1e9
    figures["matmul_bfloat16_gflops"] = rates[True] / 1e9
    return figures | (peer(peer_python, figures, seconds) if peer_python else {})


def peer(python: str, ours: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Figures of LeRobot, and how many times as fast we are.

    LeRobot computes in float32. So do our cases `_float32`, which compare like with like; the
    others compute in bfloat16 where this CPU is faster so.

    Raises:
        SetupError: that interpreter has no LeRobot, or LeRobot fails.
    """
    cases = []
    for name in COMPARED:
        config, pixels = CAMERA_CASES.get(name) or (CASES[name], 0)
        cases.append(
            {
                "name": name,
                "state": STATE_SIZE,
                "action": 6,
                "critics": config.critics,
                "batch": config.batch_size,
                "ratio": config.critic_actor_ratio,
                "cameras": CAMERAS if pixels else 0,
                "pixels": pixels,
                "steps": 300,
                "seconds": seconds,
                "threads": torch.get_num_threads(),
            }
        )
    script = Path(__file__).with_name("lerobot.py")
    done = subprocess.run(
        [python, str(script), json.dumps(cases)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(
            "the peer could not be measured",
            expected=f"LeRobot 0.6 in {python}",
            got=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message",
            fix="pip install 'lerobot[dataset,hilserl]' into an environment of its own",
        )
    theirs = json.loads(done.stdout.splitlines()[-1])
    figures = {f"lerobot/{n}/{k}": v for n, values in theirs.items() for k, v in values.items()}
    for name in COMPARED:
        for case in (f"{name}_float32", name):
            speed = ours[f"{case}/updates_per_s"] / theirs[name]["updates_per_s"]
            figures[f"times_lerobot/{case}/updates_per_s"] = speed
    return figures


def flops_per_update(algo: HilSerl) -> float:
    """Multiply-adds x 2 of one gradient step: the products that no implementation can leave out.

    Forward 1; gradient of the weights 1; gradient of the input 1, but not of the first layer where
    nobody asks for it. One actor step is shared by `critic_actor_ratio` gradient steps.
    """
    config, batch = algo.config, algo.config.batch_size
    first, rest = _products(algo.critic_net.sizes)
    policy_first, policy_rest = _products(algo.net.policy.sizes)
    critic = config.critics * (2 * first + 3 * rest) + config.target_subset * (first + rest)
    critic += policy_first + policy_rest  # a' for the target
    if algo.net.gripper:
        gripper_first, gripper_rest = _products(algo.net.gripper.sizes)
        critic += 4 * gripper_first + 5 * gripper_rest
    actor = config.critics * 2 * (first + rest) + 2 * policy_first + 3 * policy_rest
    heads = 2.0 * batch * (critic + actor / config.critic_actor_ratio)
    return heads + batch * _encoder_flops(algo)[1]


def _encoder_flops(algo: HilSerl) -> tuple[float, float]:
    """Operations for the images of one sample: (one look, what a gradient step needs).

    s forward and backward, s' through the fast and the slow encoder; a frozen trunk looks at each
    picture once per draw, or, without shifts, once and for all.
    """
    encoder = algo.net.encoder
    if encoder is None:
        return 0.0, 0.0
    shapes = {k: (1, *algo.spec.observation[k].shape) for k in encoder.keys}
    images = {k: torch.zeros(v, dtype=torch.uint8, device=algo.device) for k, v in shapes.items()}
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        encoder(images, algo.actor["encoder"])
    with FlopCounterMode(display=False) as both:  # knows that nobody asks for d loss / d image
        encoder(images, algo.actor["encoder"]).sum().backward()
    once, twice = float(forward.get_total_flops()), float(both.get_total_flops())
    if encoder.config.frozen:
        return once, 2.0 * once if encoder.config.shift_px else 0.0
    return once, twice + 2.0 * once


def matmul_flops_per_s(bf16: bool) -> float:
    """Rate of the layer that dominates: a pair of [256, 256] x [256, 256]."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    a, b = torch.randn(2, 2, 256, 256).to(dtype)
    return 2 * 2 * 256**3 / _period_s(lambda: torch.bmm(a, b), 0.3)


def _case(
    algo: HilSerl,
    replay: Replay,
    flops_per_s: float,
    *,
    seconds: float,
    compiled: bool,
    profile: bool,
) -> dict[str, float]:
    rng = np.random.default_rng(0)
    if compiled:
        algo.compile()

    def sample(batch_size: int, demo_fraction: float) -> Batch:
        return replay.sample(batch_size, demo_fraction, rng)

    update_s = _gpu_period_s if algo.device.type == "cuda" else _period_s
    rate = algo.steps_per_update / update_s(lambda: algo.update(sample), seconds)
    draw = 1e3 * _period_s(lambda: sample(algo.batch_size, 0.5), min(seconds, 0.5))
    figures = {"updates_per_s": rate, "sample_ms": draw}
    if algo.device.type != "cpu":  # there so small products do not bound anything
        return figures
    floor = flops_per_s / flops_per_update(algo)
    figures |= {"floor_updates_per_s": floor, "of_floor": rate / floor}
    return figures | (_profile(lambda: algo.update(sample)) if profile else {})


def _profile(update: Callable[[], object]) -> dict[str, float]:
    """Shares of an update's time: of the operations that take most of it, of all others, of Python.

    "python" is what no operation accounts for: the interpreter, the drawing of a batch, and the
    profiler itself, which makes this share somewhat larger than it is.
    """
    with torch_profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        for _ in range(PROFILED):
            update()
        took_us = 1e6 * (time.perf_counter() - began)
    spent = {e.key.removeprefix("aten::"): e.self_cpu_time_total for e in profiler.key_averages()}
    named = sorted(spent, key=lambda key: -spent[key])[:NAMED]
    shares = {f"profile/{key}": spent[key] / took_us for key in named}
    shares["profile/other operations"] = sum(spent[k] for k in spent.keys() - named) / took_us
    return shares | {"profile/python": 1.0 - sum(shares.values())}


def _products(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Multiply-adds per row: of the first layer, of the others."""
    layers = [i * o for i, o in itertools.pairwise(sizes)]
    return layers[0], sum(layers[1:])


def _period_s(work: Callable[[], object], seconds: float) -> float:
    """Median time of one call over about `seconds`."""
    for _ in range(WARM_UP):
        work()
    times: list[float] = []
    while sum(times) < seconds:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _gpu_period_s(work: Callable[[], object], seconds: float) -> float:
    """Mean time of one call over about `seconds`, with the GPU idle before and after."""
    for _ in range(WARM_UP):
        work()
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        work()
        count += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def made_up_spec(cameras: int = 0, pixels: int = 0) -> Spec:
    action = ActionSpec(translation_m=0.01, rotation_rad=0.1, gripper=False)
    image = TensorSpec((pixels, pixels, 3), "uint8")
    images = {f"image/{i}": image for i in range(cameras)}
    return Spec("bench", 10.0, {"state": STATE, **images}, action)


def made_up_rows(spec: Spec, episodes: int = EPISODES) -> list[Row]:
    """Random episodes, a fifth of them demonstrations."""
    rng, rows = np.random.default_rng(0), list[Row]()
    cameras = [k for k in spec.observation if k != "state"]
    for number in range(episodes):
        key, demo = EpisodeId("bench", "actor", number), number % 5 == 0
        rows.append(EpisodeStart(key, "demo" if demo else "train", "bench", spec.hash, "", 0, 0))
        for index in range(EPISODE_STEPS + 1):
            state = rng.normal(size=STATE_SIZE).astype(np.float32)
            images = {k: rng.integers(0, 256, spec.observation[k].shape, np.uint8) for k in cameras}
            rows.append(Frame(key, index, 0, {"state": state, **images}))
        rows += [_step(key, index, demo, rng) for index in range(EPISODE_STEPS)]
    return rows


def _step(key: EpisodeId, index: int, demo: bool, rng: np.random.Generator) -> Step:
    action = rng.uniform(-1, 1, 6).astype(np.float32)
    last = index == EPISODE_STEPS - 1
    return Step(
        id=key,
        step=index,
        frame=index,
        next_frame=index + 1,
        segment=0,
        driver=Driver.DEMO if demo else Driver.POLICY,
        action=action,
        policy_action=action,
        outcome=Outcome.PASS,
        reason="",
        reward=float(last and demo),
        ending=(Ending.TERMINATED if demo else Ending.TRUNCATED) if last else None,
        success=demo if last else None,
        weights_version=0,
        stamp_ns=0,
    )
