"""`base=lerobot` against a stand-in of LeRobot's loading code: same names, same order of calls.

The real package lives in an environment of its own: `make compat-lerobot` runs
`tests/compat/lerobot_base.py` there, with real ACT and Diffusion policies.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
import types
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.config.registry import resolve
from robot_rl.errors import CheckpointError, ConfigError, SetupError, SpecError
from robot_rl.policy.base.lerobot_files import PROCESSORS
from robot_rl.policy.base.schedule import AsyncSchedule, schedule_of
from robot_rl.policy.base.served import ServedConfig
from robot_rl.policy.base.spec import BasePolicy
from robot_rl.run.experiment import Experiment
from robot_rl.run.serve_policy import serve_run
from robot_rl.spec import ActionSpec, Spec, TensorSpec

SPEC = Spec(
    "fake",
    10.0,
    {"state": TensorSpec((5,), "float32"), "image/front": TensorSpec((8, 6, 3), "uint8")},
    ActionSpec(0.01, 0.1, gripper=True),
)
OBSERVATION = {
    "state": np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32),
    "image/front": np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3),
}
INPUTS = {
    "observation.state": "state",
    "observation.images.top": "image/front",
    "task": "prompt",
}
H, A = 6, 7


class Config:
    """What `config.json` says."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.action_feature = types.SimpleNamespace(shape=(A,))

    @classmethod
    def from_pretrained(cls, where: str, **_: Any) -> Config:
        return cls(json.loads((Path(where) / "config.json").read_text()))


class Policy:
    """Proposes its noise plus the state's first number, in normalised units."""

    heard: Any = None

    def __init__(self, config: Config) -> None:
        self.config, self.resets = config, 0

    @classmethod
    def from_pretrained(cls, _where: str, config: Config, **_: Any) -> Policy:
        kinds = {"pi0": Noisy, "act": Policy, "diffusion": Framed}
        return kinds[config.type](config)  # type: ignore[attr-defined]

    def to(self, _device: str) -> Policy:
        return self

    def eval(self) -> Policy:
        return self

    def reset(self) -> None:
        self.resets += 1

    def predict_action_chunk(self, batch: dict[str, Any]) -> torch.Tensor:
        return self.chunk(batch, torch.zeros(1, H, A))

    def chunk(self, batch: dict[str, Any], noise: torch.Tensor) -> torch.Tensor:
        Policy.heard = batch
        return noise + batch["observation.state"][:, :1, None]


class Noisy(Policy):
    def predict_action_chunk(
        self, batch: dict[str, Any], noise: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.chunk(batch, torch.zeros(1, H, A) if noise is None else noise)


class Framed(Policy):
    """Looks at its memory only, as Diffusion does."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._queues = {
            "observation.state": deque(maxlen=2),
            "observation.images": deque(maxlen=2),
            "action": deque(maxlen=2),
        }

    def predict_action_chunk(self, batch: dict[str, Any]) -> torch.Tensor:
        Policy.heard = {k: torch.stack(list(self._queues[k])) for k in batch if k in self._queues}
        return self.chunk_of(Policy.heard["observation.state"])

    def chunk_of(self, states: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, H, A) + states[-1, :, :1, None]


def processors(_config: Config, **_: Any) -> tuple[Any, Any]:
    """Adds the batch axis; brings actions to units in which 1 is 0.05 m."""

    def before(batch: dict[str, Any]) -> dict[str, Any]:
        found = {k: v[None] if isinstance(v, torch.Tensor) else [v] for k, v in batch.items()}
        return found | {"action": None}  # as theirs

    return before, lambda chunk: chunk * 0.05


@pytest.fixture
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(name: str, **content: Any) -> None:
        made = types.ModuleType(name)
        made.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, made)

    for name in ("lerobot", "lerobot.configs", "lerobot.policies"):
        module(name)
    module("lerobot.configs.policies", PreTrainedConfig=Config)
    module(
        "lerobot.policies.factory",
        get_policy_class=lambda _type: Policy,
        make_pre_post_processors=processors,
    )


def saved(folder: Path, kind: str = "act", **more: Any) -> str:
    folder.mkdir(exist_ok=True)
    features = {k: {} for k in INPUTS if k != "task"}
    images = {"observation.images.top": {}}
    config = {"type": kind, "chunk_size": H, "input_features": features, "image_features": images}
    (folder / "config.json").write_text(json.dumps(config | more))
    for name in PROCESSORS:
        (folder / name).write_text(json.dumps({"name": name, "steps": [BATCH, NORMAL]}))
    return str(folder)


BATCH = {"registry_name": "to_batch_processor", "config": {}}
NORMAL = {
    "registry_name": "normalizer_processor",
    "config": {"eps": 1e-8},
    "state_file": "policy_preprocessor_step_1_normalizer_processor.safetensors",
}


@pytest.fixture
def loading(lerobot: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LeRobot was asked to load; its loader of processors does as the real one."""
    asked: list[str] = []

    def load(_config: Config, pretrained_path: str, **_: Any) -> tuple[Any, Any]:
        asked.append("processors")
        for name in PROCESSORS:
            for step in json.loads((Path(pretrained_path) / name).read_text())["steps"]:
                if "registry_name" not in step:
                    module, _, kind = step["class"].rpartition(".")
                    getattr(importlib.import_module(module), kind)(**step["config"])
        return processors(_config)

    monkeypatch.setattr(sys.modules["lerobot.policies.factory"], "make_pre_post_processors", load)
    read = Config.from_pretrained

    def config(where: str, **words: Any) -> Config:
        asked.append("config")
        return read(where, **words)

    monkeypatch.setattr(Config, "from_pretrained", config)
    return asked


def hostile(mark: Path) -> dict[str, Any]:
    """A step that is a program."""
    return {"class": "subprocess.Popen", "config": {"args": ["touch", str(mark)]}}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("first", [True, False])
def test_a_folder_that_names_a_program_is_refused_before_anything_is_loaded(
    tmp_path: Path, loading: list[str], name: str, first: bool
) -> None:
    path, mark = saved(tmp_path / "p"), tmp_path / "ran"
    base(path)  # is fine as it is
    loading.clear()
    steps = [hostile(mark), BATCH] if first else [BATCH, hostile(mark)]
    (Path(path) / name).write_text(json.dumps({"name": name, "steps": steps}))
    with pytest.raises(CheckpointError, match="could bring its own code") as error:
        base(path)
    time.sleep(0.1)
    assert "subprocess.Popen" in error.value.got and not mark.exists() and loading == []


@pytest.mark.parametrize(
    "step",
    [
        {"class": "lerobot.processor.DeviceProcessorStep", "config": {}},
        BATCH | {"class": "subprocess.Popen"},
        {"registry_name": "action_tokenizer_processor", "config": {"action_tokenizer_name": "a/b"}},
        {"registry_name": "groot_eagle_encode_v3", "config": {}},
        {"registry_name": ["to_batch_processor"]},
        {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "evil/tokenizer"}},
        {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "./here"}},
        NORMAL | {"state_file": "../other.safetensors"},
        NORMAL | {"state_file": 7},
        NORMAL | {"config": []} | {"config": ["x"]},
        "to_batch_processor",
        None,
        {},
    ],
)
def test_a_step_that_is_not_listed_is_refused(
    tmp_path: Path, loading: list[str], step: object
) -> None:
    path = saved(tmp_path / "p")
    (Path(path) / PROCESSORS[0]).write_text(json.dumps({"name": "x", "steps": [BATCH, step]}))
    with pytest.raises(CheckpointError):
        base(path)
    assert loading == []


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("groot", {}),
        ("wall_x", {}),
        ("reward_classifier", {}),
        ("act", {"use_peft": True}),
        ("smolvla", {"vlm_model_name": "evil/model"}),
        ("smolvla", {"vlm_model_name": None}),
    ],
)
def test_a_policy_that_could_bring_code_is_refused(
    tmp_path: Path, loading: list[str], kind: str, more: dict[str, Any]
) -> None:
    with pytest.raises(CheckpointError, match="could bring its own code"):
        base(saved(tmp_path / "p", kind, **more))
    assert loading == []


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{" + " " * (2 << 20), '{"type": NaN}'])
@pytest.mark.parametrize("name", ["config.json", *PROCESSORS])
def test_odd_files_are_one_error(tmp_path: Path, loading: list[str], name: str, text: str) -> None:
    path = saved(tmp_path / "p")
    (Path(path) / name).write_text(text)
    with pytest.raises(CheckpointError):
        base(path)
    assert loading == []


def test_a_policy_of_the_hub_is_fetched_as_data_and_checked(
    tmp_path: Path, loading: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = saved(tmp_path / "p"), []

    def download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        return path

    hub = types.ModuleType("huggingface_hub")
    hub.__dict__["snapshot_download"] = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    words = {"revision": "0" * 40}
    base("somebody/policy", **words)
    assert asked == [
        ("somebody/policy", "0" * 40, ["config.json", "policy_*.json", "*.safetensors"])
    ]
    (Path(path) / PROCESSORS[1]).write_text(json.dumps({"steps": [hostile(tmp_path / "ran")]}))
    loading.clear()
    with pytest.raises(CheckpointError, match="could bring its own code"):
        base("somebody/policy", **words)
    assert loading == []


def base(path: str, **changes: Any) -> BasePolicy:
    words = {"name": "lerobot", "path": path, "inputs": INPUTS, "prompt": "lift it"} | changes
    return resolve("base", words).open(SPEC, seed=0)


@pytest.mark.usefixtures("lerobot")
def test_what_the_policy_sees_and_what_comes_back_are_in_its_own_units(tmp_path: Path) -> None:
    made = base(saved(tmp_path / "p"), low=(-0.1,) * A, high=(0.1,) * A)
    assert made.spec.chunk == H and made.spec.noise_shape is None
    chunk = made.sample(OBSERVATION)
    np.testing.assert_allclose(chunk, np.full((H, A), 0.1 * 0.05 / 0.1), rtol=1e-5)
    said = made.description()  # type: ignore[attr-defined]
    assert said["type"] == "act" and said["action"] == [A] and said["prompt"] == "lift it"
    assert said["inputs"]["observation.images.top"]["from"] == "image/front"
    seen = Policy.heard
    assert seen["task"] == ["lift it"]
    image = seen["observation.images.top"]
    assert image.shape == (1, 3, 8, 6) and image.dtype == torch.float32
    np.testing.assert_allclose(image[0, 2, 1, 4], OBSERVATION["image/front"][1, 4, 2] / 255)


@pytest.mark.usefixtures("lerobot")
def test_noise_is_taken_where_the_policy_takes_it(tmp_path: Path) -> None:
    made = base(saved(tmp_path / "p", "pi0", max_action_dim=A))
    assert made.spec.noise_shape == (H, A)
    noise = np.linspace(-1, 1, H * A).reshape(H, A).astype(np.float32)
    np.testing.assert_allclose(made.sample(OBSERVATION, noise), (noise + 0.1) * 0.05, rtol=1e-5)


@pytest.mark.usefixtures("lerobot")
def test_a_policy_of_several_frames_sees_the_newest_one_in_all_of_them(tmp_path: Path) -> None:
    made = base(saved(tmp_path / "p", "diffusion"))
    for first in (0.1, 0.7):
        state = np.full(5, first, np.float32)
        chunk = made.sample(OBSERVATION | {"state": state})
        np.testing.assert_allclose(chunk, np.full((H, A), first * 0.05), rtol=1e-5)
        np.testing.assert_allclose(Policy.heard["observation.state"], first)
        assert Policy.heard["observation.images"].shape == (2, 1, 1, 3, 8, 6)


@pytest.mark.usefixtures("lerobot")
def test_it_is_served_to_whoever_has_a_key(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    experiment, stop, where = Experiment.compose(["experiment=lift"]), threading.Event(), []
    state = {"type": "act", "chunk_size": H, "input_features": {"observation.state": {}}}
    policy = saved(tmp_path / "p", **state)
    words = ["experiment=lift", "base=lerobot", f"base.path={policy}"]
    words += ["base.inputs={observation.state: state}"]
    keys = {"port": 0, "host": "127.0.0.1", "keys": None, "stop": stop}
    serving = threading.Thread(
        target=serve_run,
        args=(tmp_path / "served",),
        kwargs=keys | {"started": where.append, "overrides": words},
    )
    serving.start()
    try:
        deadline_s = time.monotonic() + 20.0
        while not where and time.monotonic() < deadline_s:
            time.sleep(0.01)
        port = int(where[0].rpartition(":")[2])
        spec = experiment.task.spec
        client = ServedConfig(run=str(tmp_path / "served"), port=port).open(spec, 0)
        observation = {"state": np.full(spec.observation["state"].shape, 0.3, np.float32)}
        np.testing.assert_allclose(client.sample(observation), 0.3 * 0.05, rtol=1e-5)
        client.close()
    finally:
        stop.set()
        serving.join()


def test_what_has_no_policy_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no policy to serve"):
        serve_run(
            tmp_path / "served",
            host="127.0.0.1",
            port=0,
            keys=None,
            stop=threading.Event(),
            overrides=["experiment=lift"],
        )


@pytest.mark.usefixtures("lerobot")
def test_it_is_asked_beside_the_loop_where_time_is_real(tmp_path: Path) -> None:
    config = resolve("base", {"name": "lerobot", "path": saved(tmp_path / "p"), "inputs": INPUTS})
    made = schedule_of(config, SPEC, 0, real_time=True)
    assert isinstance(made, AsyncSchedule)
    made.close()


@pytest.mark.usefixtures("lerobot")
@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"path": ""}, ConfigError, "stays the same"),
        ({"path": "somebody/policy", "revision": "main"}, ConfigError, "40 hex"),
        ({"inputs": {}}, ConfigError, "told what to show"),
        ({"inputs": {"observation.state": "state"}}, ConfigError, "images.top"),
        ({"inputs": INPUTS | {"observation.wrist": "state"}}, ConfigError, "observation.wrist"),
        ({"inputs": INPUTS | {"observation.state": "stat"}}, ConfigError, "not observed"),
    ],
)
def test_what_cannot_work_is_said_before_anything_moves(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        base(**({"path": saved(tmp_path / "p")} | changes))


@pytest.mark.usefixtures("lerobot")
def test_a_folder_that_lerobot_cannot_load_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="empty"):
        base(str(tmp_path / "empty"))


@pytest.mark.usefixtures("lerobot")
def test_an_action_of_another_size_never_gets_through(tmp_path: Path) -> None:
    made = base(saved(tmp_path / "p"), columns=(0, 1, 2, 3, 4, 5, 9))
    with pytest.raises(SpecError):
        made.sample(OBSERVATION)


def test_without_lerobot_it_says_what_to_install(tmp_path: Path) -> None:
    if "lerobot" in sys.modules:
        pytest.skip("LeRobot is here")
    with pytest.raises(SetupError, match="pip install lerobot"):
        base(saved(tmp_path / "p"))
