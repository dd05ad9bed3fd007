"""Every decoder and parser: seeds, inputs that once found a defect, and changed ones. See `run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.measure import Watch, allowed_mb, memory_mb, quiet, reset_peak, warm
from tests.fuzz.mutate import Mutator
from tests.fuzz.run import CORPUS, seeds_of
from tests.fuzz.targets import TARGETS

CHANGED = 150  # inputs of a target of weight 1
MOST_BYTES = 300_000  # of all seeds


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_promise(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    seeds = seeds_of(target)
    mutator = Mutator(seeds, 7, target.longest, target.tree, target.skip)
    with quiet():
        run = target.open(tmp_path)
        warm(target, run, seeds)
        watch, before_mb = Watch(target, run), memory_mb("VmRSS")
        reset_peak()
        for data in seeds:
            watch(data)
        for _ in range(max(8, min(CHANGED, round(CHANGED * target.weight)))):
            watch(mutator.fresh())
        grown_mb = memory_mb("VmHWM") - before_mb
    assert not watch.defects, [f"{d.kind}: {d.what}: {d.data!r}" for d in watch.defects.values()]
    assert watch.accepted, "no seed is valid: the fuzzer sees the first lines only"
    assert grown_mb < allowed_mb(target)


def test_every_target_has_seeds_and_they_are_few() -> None:
    folders = {path.name for path in CORPUS.iterdir()}
    assert folders == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) < MOST_BYTES


def test_a_defect_is_seen(tmp_path: Path) -> None:
    """A target that breaks a promise fails: exceptions, time and place are looked at."""
    target = TARGETS["pairing_string"]

    def broken(data: bytes) -> None:
        if data == b"hang":
            sum(range(30_000_000))
        raise KeyError("not promised")

    watch = Watch(target, broken, hang_s=0.05)
    with quiet():
        watch(b"crash")
        watch(b"hang")
    kinds = {defect.kind: defect for defect in watch.defects.values()}
    assert kinds["crash"].data == b"crash" and kinds["hang"].data == b"hang"


def test_the_changes_are_the_same_each_time_and_reach_the_inside() -> None:
    seeds = [b'{"a": [1, 2], "b": {"c": "text"}}']
    one, other = (Mutator(seeds, 3, 4096, "json") for _ in range(2))
    made = [one.fresh() for _ in range(300)]
    assert made == [other.fresh() for _ in range(300)]
    assert len(set(made)) > 200 and any(b"Infinity" in data for data in made)
