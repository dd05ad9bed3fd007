"""Cases of what is on the disk: full disks, power cuts, damaged checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured
from robot_rl.bench.faults.power import cut, no_checkpoints, wal_of
from robot_rl.bench.samples import episode_rows, frame_row, sample_spec, start_row, step_row
from robot_rl.errors import CheckpointError, StoreError
from robot_rl.learn.checkpoint import MANIFEST, TENSORS, Checkpoint, CheckpointFolder
from robot_rl.store.store import RESERVE_BYTES, Store
from robot_rl.types import ONLY_ACTOR, Ending, EpisodeId

SPEC = sample_spec()
RUN = "run"
STEPS = 20  # per episode
RECOVERED_EPISODES, RECOVER_S = 100, 5.0
ROOM_PAGES = 3  # of a database that is about to be full


def number(episode: int) -> EpisodeId:
    """Identity of an episode."""
    return EpisodeId(RUN, ONLY_ACTOR, episode)


# --- 30: the disk is full ------------------------------------------------------------------------


def disk_full(context: Context) -> Measured:
    """The disk fills up in the middle of an episode: below the reserve, then really."""
    begun = unsealed = corrupt = n = 0
    rng = context.rng
    for i in context.trials():
        path = context.folder / str(i) / "store.sqlite"
        with Store(path, spec=SPEC, reserve_bytes=0) as store:
            rows = episode_rows(SPEC, number(0), STEPS)
            until = 2 * int(rng.integers(1, STEPS))
            store.append(rows[:until])
            store.reserve_bytes = 10**18  # from here on too little is free
            store.append(rows[until:])
            unsealed += store.ending(number(0)) is not Ending.TRUNCATED
            begun += _takes(store, [start_row(SPEC, number(1))])
            store.reserve_bytes = 0
            (pages,) = store._db.execute("PRAGMA page_count").fetchone()
            store._db.execute(f"PRAGMA max_page_count={pages + ROOM_PAGES}")
            begun += _takes(store, episode_rows(SPEC, number(2), 400))
        corrupt += _is_corrupt(path, len(rows))
        n += 1
    return Measured.of(
        Figure("episodes begun on a full disk", begun, ""),
        Figure("running episodes that were not sealed", unsealed, ""),
        Figure("stores that are not whole", corrupt, ""),
        Figure("reserve", RESERVE_BYTES / 1e9, "GB"),
        n=n,
    )


def _takes(store: Store, rows: list) -> bool:
    try:
        store.append(rows)
    except StoreError:
        return False
    return True


def _is_corrupt(path: Path, rows: int) -> bool:
    """Whether a store holds anything but these rows, or does not go on once there is room."""
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        try:
            store.verify()
        except StoreError:
            return True
        goes_on = _takes(store, episode_rows(SPEC, number(3), 400))
        return not goes_on or store.last_seq() != rows + 802


# --- 31: power cuts ------------------------------------------------------------------------------


def power_cut(context: Context) -> Measured:
    """The log of a store is cut, and sometimes torn, at random bytes; then it is opened again."""
    rng, failed, lost, n = context.rng, 0, [], 0
    with _recorded(context.folder / "store.sqlite", rng) as (store, commits):
        size = wal_of(store.path).stat().st_size
        for _ in context.trials():
            at = int(rng.integers(0, size + 1))
            path = cut(
                store.path, context.folder / "cut" / "store.sqlite", at, rng if n % 2 else None
            )
            promised = max(steps for end, steps in commits if end <= at)
            try:
                with Store(path, spec=SPEC, reserve_bytes=0) as left:
                    left.verify()
                    left.recover(RUN, ONLY_ACTOR)
                    found = sum(e.steps for e in left.episode_summaries())
                    left.append(episode_rows(SPEC, number(10**6), 2))  # it goes on by itself
            except StoreError:
                failed += 1
                continue
            finally:
                n += 1
            lost.append(promised + 1 - found)  # and the step that was being written
    took_s = _recovery_s(context.folder, rng)
    return Measured.of(
        Figure("recovered", 100.0 * (n - failed) / max(n, 1), "%"),
        Figure("steps lost, max", max(lost, default=np.nan), ""),
        Figure(f"recovery of {RECOVERED_EPISODES} episodes", took_s, "s"),
        n=n,
    )


@contextmanager
def _recorded(
    path: Path, rng: np.random.Generator, episodes: int = 4
) -> Iterator[tuple[Store, list[tuple[int, int]]]]:
    """A store whose commits are all in its log; yields it and (size of the log, steps) of each."""
    commits = [(0, 0)]
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        no_checkpoints(store._db)
        steps = 0
        for episode in range(episodes):
            id_ = number(episode)
            store.append([start_row(SPEC, id_), frame_row(SPEC, id_, 0, rng)])
            for k in range(STEPS):
                last = Ending.TRUNCATED if k == STEPS - 1 else None
                row = step_row(SPEC, id_, k, rng, ending=last)
                store.append([row, frame_row(SPEC, id_, k + 1, rng)])
                steps += 1
                commits.append((wal_of(path).stat().st_size, steps))
        yield store, commits


def _recovery_s(folder: Path, rng: np.random.Generator) -> float:
    """Seconds until a store of many episodes, cut short in its log, is open, checked and marked."""
    with _recorded(folder / "many.sqlite", rng, RECOVERED_EPISODES) as (store, commits):
        path = cut(store.path, folder / "many-cut" / "store.sqlite", commits[-1][0] - 1)
        begun_s = time.monotonic()
        with Store(path, spec=SPEC, reserve_bytes=0) as left:
            left.verify()
            left.recover(RUN, ONLY_ACTOR)
        return time.monotonic() - begun_s


# --- 32: damaged checkpoints ---------------------------------------------------------------------


def checkpoint_damaged(context: Context) -> Measured:
    """The newest checkpoint is cut short, or one bit of it is flipped."""
    used = silent = n = 0
    folder = CheckpointFolder(context.folder / "checkpoints", keep=2)
    heard: list[logging.LogRecord] = []
    listener = logging.getLogger("robot_rl.learn.checkpoint")
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign]
    level = listener.level
    listener.addHandler(handler)
    listener.setLevel(logging.ERROR)
    listener.propagate = False  # two hundred damaged checkpoints are not what people want to read
    try:
        for update in (1, 2):
            tensors = {"w": torch.full((64, 64), float(update)), "b": torch.zeros(8)}
            facts = {"updates": update, "cursor": 10 * update, "rng": {"state": 12345}}
            newest = folder.save(Checkpoint(tensors, facts, SPEC.hash))
        whole = {name: (newest / name).read_bytes() for name in (TENSORS, MANIFEST)}
        for _ in context.trials():
            name = (TENSORS, MANIFEST)[n % 2]
            (newest / name).write_bytes(_damaged(whole[name], context.rng, cut=n % 4 < 2))
            heard.clear()
            used += _loads(context.folder / "checkpoints") == 1
            silent += not heard
            (newest / name).write_bytes(whole[name])
            n += 1
        intact = _loads(context.folder / "checkpoints")
    finally:
        listener.removeHandler(handler)
        listener.setLevel(level)
        listener.propagate = True
    return Measured.of(
        Figure("previous one used", 100.0 * used / max(n, 1), "%"),
        Figure("without a word", silent, ""),
        Figure("the newest when it is whole", intact, ""),
        n=n,
    )


def _loads(folder: Path) -> int:
    """Which checkpoint a new process loads; 0 = none, or something else than was saved."""
    try:
        found = CheckpointFolder(folder).load(SPEC.hash)
    except (CheckpointError, Exception):
        return 0
    if found is None:
        return 0
    update = found.facts.get("updates")
    facts = {"updates": update, "cursor": 10 * (update or 0), "rng": {"state": 12345}}
    same = found.facts == facts and bool((found.tensors["w"] == float(update or 0)).all())
    return int(update) if same and update else 0


def _damaged(data: bytes, rng: np.random.Generator, *, cut: bool) -> bytes:
    if cut:
        return data[: int(rng.integers(0, len(data)))]
    flipped = bytearray(data)
    bit = int(rng.integers(0, 8 * len(data)))
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


CASES = (
    Case(
        number=30,
        name="disk_full",
        title="disk full",
        injection="in the middle of an episode the disk has less than the reserve, then no room at "
        "all",
        promise="the running episode is sealed, a new one is refused before it starts, every file "
        "stays whole, and recording goes on once there is room",
        limits=(
            Limit("episodes begun on a full disk", "", at_most=0.0),
            Limit("running episodes that were not sealed", "", at_most=0.0),
            Limit("stores that are not whole", "", at_most=0.0),
            Limit("reserve", "GB", at_least=2.0),
        ),
        fails_if="a store without a reserve begins an episode that it cannot end; one without "
        "transactions keeps half of a batch",
        full=200,
        least=3,
        measure=disk_full,
    ),
    Case(
        number=31,
        name="power_cut",
        title="power cut at a random byte of a write",
        injection="the store's log ends at a random byte, with noise behind in each second trial",
        promise="it opens, checks and goes on by itself; at most the step being written is lost; "
        "100 episodes are recovered within 5 s",
        limits=(
            Limit("recovered", "%", at_least=100.0),
            Limit("steps lost, max", "", at_most=1.0),
            Limit(f"recovery of {RECOVERED_EPISODES} episodes", "s", at_most=RECOVER_S),
        ),
        fails_if="a file without a log or checksums is torn, or loses what was committed before",
        full=500,
        least=10,
        measure=power_cut,
    ),
    Case(
        number=32,
        name="checkpoint_damaged",
        title="checkpoint cut short, or a bit flipped",
        injection="tensors or manifest of the newest checkpoint are cut, or one bit of them is "
        "flipped",
        promise="the checkpoint before is used, and the log says so",
        limits=(
            Limit("previous one used", "%", at_least=100.0),
            Limit("without a word", "", at_most=0.0),
            Limit("the newest when it is whole", "", at_least=2.0),
        ),
        fails_if="a checkpoint whose facts are not hashed continues from altered counters",
        full=200,
        least=20,
        measure=checkpoint_damaged,
    ),
)
