"""What the files of a LeRobot policy may say, looked at before LeRobot reads one of them.

LeRobot imports and calls whatever class a processor's JSON names, and some of its policies and
steps run code that comes with the weights (`trust_remote_code`). So a policy from somebody else is
loaded only if it names nothing but what is listed here: steps by their registered name, policies
and tokenizers that are known to be data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import CheckpointError, SetupError
from robot_rl.system import plain_json

POLICIES = ("act", "diffusion", "smolvla", "pi0", "pi05")
STEPS = (
    "rename_observations_processor",
    "to_batch_processor",
    "device_processor",
    "normalizer_processor",
    "unnormalizer_processor",
    "tokenizer_processor",
    "smolvla_new_line_processor",
    "pi0_new_line_processor",
    "pi05_prepare_state_tokenizer_processor_step",
)
MODELS = (  # backbones and tokenizers that may be fetched by name: they bring no code
    "HuggingFaceTB/SmolVLM2-500M-Video-Instruct",
    "HuggingFaceTB/SmolVLM2-256M-Video-Instruct",
    "HuggingFaceTB/SmolVLM2-2.2B-Instruct",
    "google/paligemma-3b-pt-224",
)
NAMES_A_MODEL = ("vlm_model_name", "tokenizer_name")
PROCESSORS = ("policy_preprocessor.json", "policy_postprocessor.json")
MAX_BYTES = 1 << 20


def checked_folder(where: str, revision: str) -> Path:
    """The folder of a policy, which names nothing that is not listed above.

    Args:
        where: a folder, or org/name on the hub.
        revision: of the hub, a commit; its data files are downloaded first, and nothing else.

    Raises:
        CheckpointError: a file is missing or names something else.
        SetupError: the hub's client is not installed.
    """
    folder = Path(where).expanduser()
    if not folder.is_dir():
        folder = _downloaded(where, revision)
    config = _read(folder / "config.json")
    if config.get("type") not in POLICIES:
        raise _refused(folder, "config.json", f"a policy of {POLICIES}", config.get("type"))
    if config.get("use_peft"):
        raise _refused(folder, "config.json", "a policy with all of its weights", "use_peft")
    _check_models(folder, "config.json", config)
    for name in PROCESSORS:
        steps = _read(folder / name).get("steps")
        if not isinstance(steps, list):
            raise _refused(folder, name, "a list of steps", steps)
        for step in steps:
            _check_step(folder, name, step)
    return folder


def _check_step(folder: Path, name: str, step: Any) -> None:
    registered = step.get("registry_name") if isinstance(step, Mapping) else None
    if registered not in STEPS or "class" in step:
        raise _refused(folder, name, f"registry_name: one of {', '.join(STEPS)}", step)
    state = step.get("state_file", "x")
    if not isinstance(state, str) or "/" in state or "\\" in state:
        raise _refused(folder, name, "a state_file in this folder", state)
    _check_models(folder, name, step.get("config") or {})


def _check_models(folder: Path, name: str, values: Any) -> None:
    if not isinstance(values, Mapping):
        raise _refused(folder, name, "a config of keys and values", values)
    for key in NAMES_A_MODEL:
        if key in values and values[key] not in MODELS:
            raise _refused(folder, name, f"{key}: one of {', '.join(MODELS)}", values[key])


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        found = plain_json.loads(data)
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
        return found
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"no LeRobot policy in {path.parent}",
            expected=f"{path.name}: a map in JSON",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="give the folder that lerobot-train left (.../pretrained_model)",
        ) from error


def _downloaded(where: str, revision: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise SetupError(
            "a policy of the hub needs its client",
            expected="import huggingface_hub works",
            got=str(error),
            fix="pip install lerobot, or give a folder",
        ) from error
    try:
        wanted = ["config.json", "policy_*.json", "*.safetensors"]
        return Path(snapshot_download(where, revision=revision, allow_patterns=wanted))
    except Exception as error:  # whatever the client throws
        raise CheckpointError(
            f"{where} cannot be fetched",
            expected=f"a policy at commit {revision}",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="check the name, the commit and the network, or give a folder",
        ) from error


def _refused(folder: Path, name: str, expected: str, got: object) -> CheckpointError:
    return CheckpointError(
        f"{folder.name}/{name} names something that could bring its own code",
        expected=expected,
        got=repr(got)[:200],
        fix="load it in LeRobot itself, in an environment of its own, if you trust who made it",
    )
