"""Power cuts at every page of the log: nothing acknowledged is lost, nobody is refused for ever.

An honest disk keeps what was synced; the first tests show that what is promised is synced, and that
the rest may be torn. A disk that lies, or a folder restored from a backup, loses the end of a store
on one machine; the last tests show that the two machines find together again.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.faults.power import cut, no_checkpoints, page_ends, wal_of
from robot_rl.bench.samples import episode_rows, frame_row, sample_spec, start_row, step_row
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.server import LinkServer
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Event, Row

SPEC = sample_spec()
LINK = LinkConfig(port=0, weights_period_s=0.05, status_period_s=0.05, backoff_max_s=0.1)
RUN, ACTOR = "run", "actor-0"


def number(episode: int) -> EpisodeId:
    return EpisodeId(RUN, ACTOR, episode)


def all_rows(store: Store) -> list[FlatRow]:
    return [flatten(row) for row in store.rows_since(0, 10**6, 2**40)[0]]


@pytest.mark.parametrize("synchronous", ["full", "episode"])
def test_what_must_survive_is_synced_before_the_commit_returns(
    tmp_path: Path, synchronous: str
) -> None:
    rng = np.random.default_rng(0)
    middle: list[Row] = [step_row(SPEC, number(0), 0, rng), frame_row(SPEC, number(0), 1, rng)]
    end = dataclasses.replace(middle[0], step=1, ending=Ending.TERMINATED)  # type: ignore[call-overload]
    with Store(tmp_path / "s", spec=SPEC, reserve_bytes=0, synchronous=synchronous) as store:
        said: list[str] = []
        store._db.set_trace_callback(said.append)

        def synced(rows: list[Row]) -> bool:
            said.clear()
            store.append(rows)
            *_, level = (text for text in said if "synchronous" in text)
            assert said.index(level) < said.index("BEGIN IMMEDIATE")
            return level.endswith("FULL")

        assert synced([start_row(SPEC, number(0)), frame_row(SPEC, number(0), 0, rng)])
        assert synced(middle) is (synchronous == "full")
        assert synced([end])
        assert synced([start_row(SPEC, number(1))])
        store.recover(RUN, ACTOR)
        assert [text for text in said if "synchronous" in text][-1].endswith("FULL")


def test_a_log_cut_or_torn_at_any_page_keeps_every_commit_before_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    commits: list[tuple[int, int]] = [(0, 0)]  # size of the log, rows
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        no_checkpoints(store._db)
        rows = episode_rows(SPEC, number(0), 30)
        for part in np.array_split(np.arange(len(rows)), 20):
            store.append([rows[i] for i in part])
            commits.append((wal_of(store.path).stat().st_size, store.last_seq()))
        kept = all_rows(store)
        cuts = [(at, torn) for at in page_ends(store.path)[::2] for torn in (None, rng)]
        cuts += [(at + int(rng.integers(1, 4000)), None) for at in page_ends(store.path)[::4]]
        for at, torn in cuts:
            path = cut(store.path, tmp_path / "cut" / "store.sqlite", at, torn)
            with Store(path, spec=SPEC, reserve_bytes=0) as left:
                left.verify()
                found = all_rows(left)
                promised = max(count for size, count in commits if size <= at)
                assert found == kept[: len(found)] and len(found) >= promised
                left.append([flatten(r) for r in rows])  # goes on by itself
                assert left.last_seq() == len(kept)


class Machines:
    """Robot and learner, each with a store that a power cut may shorten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.actor, self.learner = folder / "actor.sqlite", folder / "learner.sqlite"
        self.before = folder / "before"  # the files as they are when the power goes
        for path in (self.actor, self.learner):
            with Store(path, spec=SPEC):
                pass

    def run(self, rows: list[Row] | None = None, *, hear: bool = True, recover: bool = True) -> int:
        """One life of both: an episode more (or `rows`), everything sent. The episode's number."""
        keys = [keys_for(LINK, self.folder, name) for name in ("learner", "actor")]
        with (
            Store(self.actor, spec=SPEC, reserve_bytes=0) as store,
            Store(self.learner, spec=SPEC, reserve_bytes=0) as learner,
            LinkServer(LINK, keys[0], SPEC, learner) as server,
        ):
            no_checkpoints(store._db)
            no_checkpoints(learner._db)
            if recover:
                store.recover(RUN, ACTOR)
            link = dataclasses.replace(LINK, port=server.port)
            client = LinkClient(link, keys[1], SPEC, self.actor)
            client.start()
            end_s = time.monotonic() + 20
            while hear and not client.status()["connected"]:
                server.poll(5)
                assert time.monotonic() < end_s, client.status()
            new = max(store.next_episode(RUN, ACTOR), client.next_episode() if hear else 0)
            store.append(rows or episode_rows(SPEC, number(new), 3))
            while client.status()["pending_rows"] or store.pending_count():
                server.poll(5)
                assert time.monotonic() < end_s, client.status()
                client.raise_if_refused()
            assert server.peers()["actor"].strikes == 0
            for path in (self.actor, self.learner):
                self.before.mkdir(exist_ok=True)
                for file in (path, wal_of(path)):
                    shutil.copy(file, self.before / file.name)
            client.stop(drain_s=0.0)
        return new

    def rows(self) -> list[FlatRow]:
        """What the learner has."""
        with Store(self.learner) as store:
            store.verify()
            return all_rows(store)

    def cuts(self, name: str) -> Iterator[int]:
        """About ten sizes of a log, spread over its pages."""
        ends = page_ends(self.before / name)
        yield from ends[:: max(1, len(ends) // 10)]


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    made = Machines(tmp_path / "run")
    cut_short = episode_rows(SPEC, number(1), 6, ending=None)
    event = Event(number(1), 0, 2, "takeover", "", 1)
    made.run([*episode_rows(SPEC, number(0), 4), *cut_short, event])
    return made


def test_an_actor_that_lost_the_end_of_its_store_takes_new_numbers_and_goes_on(
    machines: Machines,
) -> None:
    acknowledged, files = machines.rows(), machines.before.rename(machines.folder / "cut-here")
    shutil.copytree(files, machines.before)
    ends = list(machines.cuts("actor.sqlite"))
    used: set[int] = set()
    for at in ends:
        cut(files / "actor.sqlite", machines.actor, at)
        new = machines.run()
        assert new not in used | {0, 1}
        used.add(new)
        with closing(Store(machines.learner)) as store:
            assert [s.step for s in store.steps(number(new))] == [0, 1, 2]
        stored = machines.rows()
        assert stored[: len(acknowledged)] == acknowledged
        assert len({row.key for row in stored}) == len(stored)
    assert len(used) == len(ends) >= 8


def test_a_learner_that_lost_acknowledged_rows_gets_them_again(machines: Machines) -> None:
    acknowledged, files = machines.rows(), machines.before.rename(machines.folder / "cut-here")
    shutil.copytree(files, machines.before)
    for at in machines.cuts("learner.sqlite"):
        cut(files / "learner.sqlite", machines.learner, at)
        machines.run()
        stored = machines.rows()
        assert {row.key: row for row in acknowledged}.items() <= {r.key: r for r in stored}.items()
        assert len({row.key for row in stored}) == len(stored)


def test_an_actor_whose_store_is_gone_and_that_hears_nobody_is_not_refused_for_ever(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged = machines.rows()
    for file in machines.folder.glob("actor.sqlite*"):
        file.unlink()
    assert machines.run(hear=False, recover=False) == 0  # a number that was used
    assert "episode 0 is not learned from" in caplog.text
    assert machines.rows()[: len(acknowledged)] == acknowledged
    new = machines.run()
    with Store(machines.learner) as store:
        assert new >= 2 and len(store.steps(number(new))) == 3
