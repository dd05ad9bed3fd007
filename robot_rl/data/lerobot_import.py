"""Make a store from a LeRobotDataset, so that a user's own demonstrations can be learned from.

Whatever can be known before the first row is checked first: rate, shapes, names, meaning of the
actions.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from robot_rl.data import lerobot_format as fmt
from robot_rl.data.folder import Progress, silent
from robot_rl.data.import_store import Judge, write_import
from robot_rl.data.inverse import Inverse
from robot_rl.data.lerobot_read import LeRobotDataset
from robot_rl.data.lerobot_rows import ACTION, EpisodeReader, ImportOptions
from robot_rl.data.names import action_names, image_keys, state_names
from robot_rl.data.source_files import SourceFiles
from robot_rl.data.without_actions import write_inferred
from robot_rl.errors import ConfigError, SpecError, did_you_mean
from robot_rl.spec import Spec, diff
from robot_rl.types import EpisodeId, Row

log = logging.getLogger(__name__)


def import_lerobot(
    source: Path,
    spec: Spec,
    out: Path,
    options: ImportOptions,
    progress: Progress = silent,
    *,
    inverse: Inverse | None = None,
    judge: Judge | None = None,
) -> dict[str, int]:
    """Write `out`/store.sqlite with every episode of the dataset; a repeated call goes on.

    Args:
        inverse: infers the actions; those of the dataset, if it has any, are not read.
        judge: says where episodes end, and which succeed, whatever was recorded; `options.success`
            names it.

    Raises:
        SpecError: another rate, robot, state, action or camera than the task's.
        ConfigError: the mapping names what is not there; `out` holds something else, or another
            dataset.
        StoreError: the dataset is damaged, or the disk full.
    """
    dataset = LeRobotDataset(source)
    options = replace(options, actions=inverse is None)
    before = dataset.identity.get("inferred_actions")
    if options.actions and before:
        log.warning("the actions of %s steps were inferred; the dataset does not say which", before)
    if filtered := dataset.identity.get("left_out_of_training"):
        log.warning("%s steps were left out of training; the dataset does not say which", filtered)
    names = resolve(dataset, spec, options)
    check(dataset, spec, names, options.ignore_names)
    digest = hashlib.sha256((source / fmt.INFO).read_bytes()).hexdigest()[:16]
    mark = {"info": digest, "names": names, "success": options.success}
    figures = {"episodes": len(dataset.lengths), "steps": sum(dataset.lengths)}
    reader = EpisodeReader(dataset, spec, names, options)
    said = {"source": str(source), **figures}
    known, pictures = SourceFiles(source), [names[key] for key in image_keys(spec)]

    def files(number: int) -> dict[str, str]:
        return known.digests(dataset.files(number, pictures))

    def rows(id_: EpisodeId) -> list[Row]:
        return judge(reader.rows(id_)) if judge else reader.rows(id_)

    if inverse is None:
        write_import(out, spec, rows, mark=mark, figures=said, progress=progress, files=files)
        return figures
    return write_inferred(
        out, rows, inverse, mark=mark, figures=said, progress=progress, files=files
    )


def has_actions(source: Path) -> bool:
    """Whether a LeRobotDataset has actions under their usual name."""
    return ACTION in LeRobotDataset(source).features


def resolve(dataset: LeRobotDataset, spec: Spec, options: ImportOptions) -> dict[str, str]:
    """Our entry -> their feature, for every observation entry and the action, if it is read.

    Raises:
        ConfigError: the mapping names a feature or an entry that does not exist.
        SpecError: an entry has no feature.
    """
    names = {key: fmt.feature_of(key) for key in spec.observation}
    names |= {ACTION: ACTION} if options.actions else {}
    for theirs, mine in options.mapping.items():
        _require_known(theirs, dataset.features, "a feature of the dataset")
        _require_known(mine, names, f"observed by '{spec.task}'")
        names[mine] = theirs
    lacking = {mine: theirs for mine, theirs in names.items() if theirs not in dataset.features}
    for mine, theirs in lacking.items():
        raise SpecError(
            f"the dataset has nothing for {', '.join(lacking)}",
            expected="; ".join(f"{t} for {m}" for m, t in lacking.items()),
            got=", ".join(dataset.features),
            fix=f"name it: --map FEATURE={mine}; {did_you_mean(theirs, dataset.features)}"
            + ("; --without-actions --inverse RUN infers actions" if mine == ACTION else ""),
        )
    known = {*names.values(), *fmt.STEP, *fmt.AUTOMATIC, "robot_rl.policy_action"}
    unused = sorted(set(dataset.features) - known)
    if unused:
        log.info("features that are not used: %s", ", ".join(unused))
    return names


def check(
    dataset: LeRobotDataset, spec: Spec, names: Mapping[str, str], ignore_names: bool = False
) -> None:
    """Compare a dataset with the task.

    Raises:
        SpecError: listing both sides of everything that differs.
    """
    if dataset.fps != spec.control_hz:
        raise SpecError(
            "the dataset runs at another rate",
            expected=f"{spec.control_hz:g} steps per second, the control_hz of '{spec.task}'",
            got=f"fps {dataset.fps:g}",
            fix="record at the task's rate, or give the task this one (task.control_hz=...)",
        )
    wrong = [line for key in names for line in _other_shape(dataset, spec, key, names[key])]
    if not wrong and not ignore_names:
        wrong += _other_names(dataset, names.get(ACTION, ""), action_names(spec))
        wrong += _other_names(dataset, names.get("state", ""), state_names(spec))
    wrong = wrong or _other_meaning(dataset, spec, names)
    if wrong:
        raise SpecError(
            "the dataset belongs to another robot or task (theirs -> ours)",
            expected=f"what '{spec.task}' observes and does",
            got="\n            ".join(wrong),
            fix="map other features with --map; --ignore-names if only the names differ",
        )


def _other_shape(dataset: LeRobotDataset, spec: Spec, key: str, name: str) -> list[str]:
    """What differs between a feature and our entry; sizes of images may differ."""
    feature = dataset.features[name]
    theirs = tuple(feature["shape"])
    if key in image_keys(spec):
        details = feature.get("info") or {}
        is_depth = details.get("is_depth_map") or details.get("video.is_depth_map")
        if feature["dtype"] not in ("video", "image") or len(theirs) != 3 or is_depth:
            kind = "depth" if is_depth else feature["dtype"]
            return [f"{name} {kind} {list(theirs)} -> RGB image {key}"]
        _log_size(name, feature, spec.observation[key].shape)
        return []
    size = spec.action.size if key == ACTION else math.prod(spec.observation[key].shape)
    if feature["dtype"] in ("video", "image", "string") or math.prod(theirs) != size:
        return [f"{name} {feature['dtype']} {list(theirs)} -> {key} [{size}]"]
    return []


def _log_size(name: str, feature: Mapping[str, Any], ours: tuple[int, ...]) -> None:
    """Say that images are resized. Their shape is [H, W, 3], or [3, H, W] in older datasets."""
    shape = list(feature["shape"])
    theirs = shape[1:] if shape[0] == 3 else shape[:2]
    if theirs != list(ours[:2]):
        log.info("%s: images of %dx%d are resized to %dx%d", name, *theirs, *ours[:2])


def _other_names(dataset: LeRobotDataset, name: str, ours: list[str] | None) -> list[str]:
    """Entries of a feature that have other names; the first four, and how many more there are."""
    theirs = dataset.features[name].get("names") if name else None
    if isinstance(theirs, dict):  # older datasets: {"motors": [...]} or {"x": 0, "y": 1}
        inner = list(theirs.values())
        theirs = inner[0] if inner and isinstance(inner[0], list) else list(theirs)
    if ours is None or not theirs:
        return []
    pairs = [f"{a} -> {b}" for a, b in zip_longest(theirs, ours, fillvalue="nothing") if a != b]
    more = [f"and {len(pairs) - 4} more"] if len(pairs) > 4 else []
    return [f"names in {name}: {', '.join([*pairs[:4], *more])}"] if pairs else []


def _other_meaning(dataset: LeRobotDataset, spec: Spec, names: Mapping[str, str]) -> list[str]:
    """What differs in scales and units, which only our own exports state."""
    saved, ours = dataset.identity.get("spec"), spec.as_dict()
    if not isinstance(saved, dict):
        return []
    read = ACTION in names
    wrong = diff({ACTION: saved.get(ACTION)}, {ACTION: ours[ACTION]}) if read else []
    if names.get("state") == fmt.feature_of("state"):
        pairs = zip_longest(saved.get("state_layout") or [], ours["state_layout"])
        wrong += [f"{theirs} -> {mine}" for theirs, mine in pairs if theirs != mine]
    return wrong


def _require_known(word: str, known: Iterable[str], what: str) -> None:
    if word not in known:
        raise ConfigError(
            f"'{word}' is not {what}",
            expected="--map FEATURE=ENTRY, e.g. observation.images.wrist=image/wrist",
            got=word,
            fix=did_you_mean(word, known),
        )
