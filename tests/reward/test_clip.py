"""CLIP as a source of progress: the formula, and a tiny CLIP from its folder to labels."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.reward import run
from robot_rl.errors import CheckpointError, ConfigError, SetupError
from robot_rl.nets.clip import ClipNet
from robot_rl.reward.config import PredicateRewardConfig
from robot_rl.reward.progress.clip import ClipModel, goal_baseline, load_progress, make_clip
from robot_rl.reward.scorer import FrameScorer
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import PROGRESS
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Frame, Step

IMAGE = "image/eye"
STATE = {"state": TensorSpec((2,), "float32")}
SPEC = Spec(
    "sample", 10.0, STATE | {IMAGE: TensorSpec((16, 16, 3), "uint8")}, ActionSpec(0.01, 0.1, True)
)
BLIND = Spec("sample", 10.0, STATE, ActionSpec(0.01, 0.1, True))
TEXTS = {"task": "the cube is lifted", "baseline": "an arm above a table"}
NEEDED = "needs transformers (pip install 'robot-rl[clip]')"
COMMIT = "0123456789abcdef" * 2 + "01234567"


def units(*shape: int) -> torch.Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return normalize(drawn, dim=-1)


def test_the_formula_by_hand() -> None:
    goal, baseline = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
    frame = torch.tensor([[0.6, 0.0, 0.8]])
    # on the line: b + 0.8 (g - b) = (0.8, 0.2, 0); half of it and of the frame: (0.7, 0.1, 0.4)
    got = goal_baseline(frame, goal, baseline, 0.5)
    torch.testing.assert_close(got, torch.tensor([1.0 - 0.5 * (0.09 + 0.01 + 0.16)]))
    got = goal_baseline(frame, goal, baseline, 1.0)
    torch.testing.assert_close(got, torch.tensor([1.0 - 0.5 * (0.04 + 0.04)]))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_properties_of_the_formula(alpha: float) -> None:
    goal, baseline, *frames = units(12, 6)
    seen = torch.stack(frames)
    got = goal_baseline(seen, goal, baseline, alpha)
    assert got.shape == (10,) and (got <= 1.0).all()
    at_goal = goal_baseline(goal[None], goal, baseline, alpha)
    torch.testing.assert_close(at_goal, torch.ones(1, dtype=torch.float64))
    if alpha == 0.0:
        torch.testing.assert_close(got, seen @ goal)  # cosine similarity
    along = normalize(goal - baseline, dim=-1)
    aside = units(3, 6)[2]
    aside -= (aside @ along) * along
    unmoved = torch.allclose(goal_baseline(seen + aside, goal, baseline, alpha), got)
    assert unmoved is (alpha == 1.0)  # what is orthogonal to the line does not count


def test_what_is_no_clip_that_stays_the_same_is_refused(tmp_path: Path) -> None:
    for where, revision in (("org/name", ""), ("org/name", "main"), ("", COMMIT)):
        with pytest.raises(ConfigError, match="40 hex digits"):
            ClipNet(where, revision)
    with pytest.raises(CheckpointError, match="reward clip"):
        ClipModel.load(tmp_path, SPEC)
    with pytest.raises(CheckpointError, match="not a progress model"):
        load_progress(tmp_path, SPEC)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SetupError, match=r"pip install 'robot-rl\[clip\]'"):
        ClipNet(str(tmp_path))


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """transformers, also where torchvision's wheel was made for another build of torch."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError):
            try:
                importlib.import_module("torchvision")
            except RuntimeError:  # then transformers does without, if it is told so in time
                patch.setitem(sys.modules, "torchvision", None)
        found = pytest.importorskip("transformers", reason=NEEDED)
        assert found.CLIPModel and found.CLIPTokenizer
        yield found


def save_tiny(library: Any, folder: Path, seed: int = 0) -> str:
    """A CLIP that has learned nothing, with letters as its words."""
    torch.manual_seed(seed)
    letters = [c + end for end in ("", "</w>") for c in "abcdefghijklmnopqrstuvwxyz"]
    words = [*letters, "<|startoftext|>", "<|endoftext|>"]
    small = {"hidden_size": 16, "intermediate_size": 32, "projection_dim": 8}
    small |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1}
    text = small | ends | {"vocab_size": len(words), "max_position_embeddings": 40}
    vision = small | {"image_size": 16, "patch_size": 8}
    config = library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    library.CLIPModel(config).save_pretrained(folder, safe_serialization=True)
    pictures = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16}}
    pictures |= {"crop_size": {"height": 16, "width": 16}}
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures))
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer"}')
    return str(folder)


@pytest.fixture(scope="module")
def tiny(library: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(library, tmp_path_factory.mktemp("tiny"))


def filmed(count: int = 3, frames: int = 40) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    size = (count, frames, 16, 16, 3)
    return [{IMAGE: x} for x in rng.integers(0, 256, size, dtype=np.uint8)]


@pytest.fixture
def model(tiny: str) -> ClipModel:
    return make_clip(ClipNet(tiny), SPEC, filmed(), **TEXTS)


def test_a_model_comes_back_from_its_folder(model: ClipModel, tmp_path: Path) -> None:
    assert model.keys == (IMAGE,) and not model.needs_past
    model.save(tmp_path)
    same = load_progress(tmp_path, SPEC)
    assert isinstance(same, ClipModel) and ClipModel.is_in(tmp_path)
    curves = np.concatenate([model.curve(x) for x in filmed()])
    np.testing.assert_array_equal(np.concatenate([same.curve(x) for x in filmed()]), curves)
    assert same.author == model.author and model.author.startswith("clip-")
    assert curves.dtype == np.float64 and curves.shape == (120,)
    assert curves.min() == 0.0 and curves.max() == 1.0  # beyond the quantiles
    assert np.isclose((curves == 0.0).mean(), 0.05) and np.isclose((curves == 1.0).mean(), 0.05)
    one = model.curve({IMAGE: filmed()[0][IMAGE][3:4]})
    np.testing.assert_allclose(one, curves[3:4], atol=1e-4)
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(ConfigError, match="two models"):
        load_progress(tmp_path, SPEC)


def test_a_model_of_the_hub_stays_at_its_commit(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def snapshot(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        assert not any(p.endswith((".bin", ".py", "*")) for p in allow_patterns)
        return tiny

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    made = make_clip(ClipNet("org/name", COMMIT), SPEC, filmed(), **TEXTS)
    made.save(tmp_path)
    same = ClipModel.load(tmp_path, SPEC)
    assert asked == [("org/name", COMMIT)] * 2 and same.author == made.author
    assert same.author == make_clip(ClipNet(tiny), SPEC, filmed(), **TEXTS).author  # same weights


def test_the_author_tells_apart_whatever_changes_the_numbers(tiny: str, model: ClipModel) -> None:
    net, authors = ClipNet(tiny), {model.author}
    for change in ({"alpha": 0.2}, {"task": "the cube is down"}, {"baseline": "a table"}):
        authors.add(make_clip(net, SPEC, filmed(), **(TEXTS | change)).author)
    authors.add(make_clip(net, SPEC, filmed(2), **TEXTS).author)  # other quantiles
    assert len(authors) == 5
    assert make_clip(net, SPEC, filmed(), **TEXTS).author == model.author


def test_a_folder_that_changed_is_refused(
    library: Any, model: ClipModel, tmp_path: Path, tiny: str
) -> None:
    weights = Path(shutil.copytree(tiny, tmp_path / "weights"))
    make_clip(ClipNet(str(weights)), SPEC, filmed(), **TEXTS).save(tmp_path)
    with pytest.raises(ConfigError, match="looks at something else"):
        ClipModel.load(tmp_path, BLIND)
    save_tiny(library, weights, seed=1)
    with pytest.raises(CheckpointError, match=r"another model\.safetensors"):
        ClipModel.load(tmp_path, SPEC)
    some = load_file(weights / "model.safetensors")
    some.pop("visual_projection.weight")
    save_file(some, weights / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="visual_projection"):
        ClipNet(str(weights))
    (weights / "model.safetensors").rename(weights / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        ClipNet(str(weights))
    model.save(tmp_path)
    data = tmp_path / "clip.safetensors"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="damaged"):
        ClipModel.load(tmp_path, SPEC)
    model.save(tmp_path)
    facts = json.loads((tmp_path / "clip.json").read_text())
    for wrong in ({"format": 0}, {"low": 2.0}, {"alpha": 2.0}, {"inputs": []}, {"clip": {}}):
        (tmp_path / "clip.json").write_text(json.dumps(facts | wrong))
        with pytest.raises(CheckpointError, match="reward clip"):
            ClipModel.load(tmp_path, SPEC)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"task": " "}, "sentence for the goal"),
        ({"baseline": ""}, "sentence for the goal"),
        ({"task": "a cube " * 30}, "152 tokens"),
        ({"baseline": TEXTS["task"]}, "baseline is the goal"),
        ({"camera": "image/front"}, "no camera 'image/front'"),
        ({"alpha": 1.5}, "alpha is a share"),
        ({"alpha": float("nan")}, "alpha is a share"),
    ],
)
def test_nonsense_is_refused(tiny: str, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_clip(ClipNet(tiny), SPEC, filmed(1), **(TEXTS | wrong))


def test_frames_that_all_look_alike_are_refused(tiny: str) -> None:
    for films in ([], [{IMAGE: np.zeros((9, 16, 16, 3), np.uint8)}]):
        with pytest.raises(ConfigError, match="no difference"):
            make_clip(ClipNet(tiny), SPEC, films, **TEXTS)
    with pytest.raises(ConfigError, match="no camera"):
        make_clip(ClipNet(tiny), BLIND, [], **TEXTS)


def test_every_frame_gets_one_label_as_the_reward_asks_for(
    model: ClipModel, tmp_path: Path
) -> None:
    model.save(tmp_path / "clip")
    config = PredicateRewardConfig(progress=str(tmp_path / "clip"), shaping=0.5)
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(episode_rows(SPEC, EpisodeId("run", "actor", 0), 6))
        assembly, (scorer,) = config.shaped_by(store, SPEC)
        assert assembly.progress_by == model.author
        assert scorer.turn() == 7 and FrameScorer(store, model).turn() == 0
        labels = [x for x in store.all_labels([PROGRESS]) if x.author == model.author]
    assert [x.step for x in labels] == list(range(7)) and {x.source for x in labels} == {"clip"}
    assert all(0.0 <= x.value <= 1.0 for x in labels)


def test_the_command_makes_a_model_that_eval_judges(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SimpleNamespace(spec=SPEC)
    monkeypatch.setattr("robot_rl.cli.reward.Experiment.load", lambda run: known)
    rng = np.random.default_rng(0)
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        for number in range(4):
            rows = list(episode_rows(SPEC, EpisodeId("run", "actor", number), 12))
            for at, row in enumerate(rows):
                if isinstance(row, Frame):
                    seen = {IMAGE: rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)}
                    rows[at] = replace(row, observation=row.observation | seen)
                elif isinstance(row, Step):
                    rows[at] = replace(row, success=number % 2 == 0 if row.ending else None)
            store.append(rows)
    words = ["--task", TEXTS["task"], "--baseline", TEXTS["baseline"], "--clip", tiny]
    made, told = tmp_path / "model", tmp_path / "told.json"
    assert run(["clip", str(tmp_path), *words, "--out", str(made), "--json", str(told)]) == 0
    said = capsys.readouterr().out
    assert "4 episodes, 2 succeed" in said and "order of time" in said
    assert f"reward.progress={made} reward.shaping=0.5" in said
    assert json.loads(told.read_text())["successes"] == 2
    assert run(["eval", str(tmp_path), "--model", str(made)]) == 0
    assert (made / "clip.html").is_file() and "control: ramp" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(["clip", "--help"])
    assert "the red cube is lifted" in capsys.readouterr().out
