"""The long runs can fail: rows that are removed, doubled or changed, and leaks, are found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.faults import endurance, soak_graph, soak_lockstep
from robot_rl.bench.faults.soak_memory import (
    FLAT,
    GROWS,
    UNDECIDED,
    Life,
    Sample,
    Sampler,
    judge,
    slope_per_hour,
)
from robot_rl.bench.faults.soak_rows import Ledger
from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.cli.main import main
from robot_rl.store.store import Store
from robot_rl.types import Command, Driver, EpisodeId, Pose

SPEC = sample_spec()
EPISODES = 4
MB = 1_000_000
NOTHING = {"rows_lost": 0, "rows_doubled": 0, "rows_foreign": 0, "rows_that_differ": 0}


# --- rows ----------------------------------------------------------------------------------------


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores with the same rows."""
    paths = tmp_path / "actor.sqlite", tmp_path / "learner.sqlite"
    for path in paths:
        with Store(path, spec=SPEC, reserve_bytes=0) as store:
            for episode in range(EPISODES):
                store.append(episode_rows(SPEC, EpisodeId("run", "arm1", episode), 5))
    return paths


def compared(stores: tuple[Path, Path]) -> dict[str, int]:
    ledger = Ledger(*stores)
    ledger.read()
    return {name: count for name, count in ledger.counts().items() if count}


def spoil(path: Path, *lines: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for line in lines:
            db.execute(line)


WITHOUT_RULES = (  # the table allows two rows with one identity from now on
    "CREATE TABLE other AS SELECT * FROM steps",
    "DROP TABLE steps",
    "ALTER TABLE other RENAME TO steps",
)
AGAIN = (
    "CREATE TEMP TABLE one AS SELECT * FROM steps WHERE episode=1 AND step=2",
    "UPDATE one SET seq=(SELECT max(seq) + 1 FROM frames)",
)


def test_equal_stores_are_equal(stores: tuple[Path, Path]) -> None:
    ledger = Ledger(*stores)
    ledger.read()
    ledger.read()
    assert ledger.counts() == NOTHING
    assert ledger.rows == EPISODES * 12  # a header, six frames, five steps


@pytest.mark.parametrize("side", [0, 1])
def test_a_removed_row_is_lost(stores: tuple[Path, Path], side: int) -> None:
    spoil(stores[side], "DELETE FROM steps WHERE episode=1 AND step=2")
    assert compared(stores)["rows_lost"] >= 1


def test_the_newest_row_is_missed_too(stores: tuple[Path, Path]) -> None:
    spoil(stores[1], "DELETE FROM frames WHERE seq=(SELECT max(seq) FROM frames)")
    assert compared(stores) == {"rows_lost": 1}


@pytest.mark.parametrize("side", [0, 1])
def test_a_row_with_one_identity_twice_is_doubled(stores: tuple[Path, Path], side: int) -> None:
    spoil(stores[side], *WITHOUT_RULES, *AGAIN, "INSERT INTO steps SELECT * FROM one")
    assert compared(stores) == {"rows_doubled": 1}


def test_a_second_copy_is_found_although_the_first_was_compared_before(
    stores: tuple[Path, Path],
) -> None:
    ledger = Ledger(*stores)
    ledger.read()
    spoil(stores[1], *WITHOUT_RULES, *AGAIN, "INSERT INTO steps SELECT * FROM one")
    ledger.read()
    assert ledger.counts() == NOTHING | {"rows_foreign": 1}


def test_a_step_under_another_number_is_doubled(stores: tuple[Path, Path]) -> None:
    for path in stores:
        spoil(path, *AGAIN, "UPDATE one SET step=99", "INSERT INTO steps SELECT * FROM one")
    assert compared(stores) == {"rows_doubled": 1}


def test_a_changed_row_differs(stores: tuple[Path, Path]) -> None:
    spoil(stores[1], "UPDATE steps SET reason='another' WHERE episode=1 AND step=2")
    assert compared(stores) == {"rows_that_differ": 1}


def test_what_waits_is_no_loss_once_it_has_come(stores: tuple[Path, Path]) -> None:
    ledger = Ledger(*stores)
    ledger.read()
    rows = episode_rows(SPEC, EpisodeId("run", "arm1", EPISODES), 5)
    with Store(stores[0]) as store:
        store.append(rows)
    ledger.read()
    assert ledger.waiting == ledger.counts()["rows_lost"] == len(rows)
    with Store(stores[1]) as store:
        store.append(rows)
    ledger.read_learner()
    assert ledger.counts() == NOTHING


# --- memory --------------------------------------------------------------------------------------


def life(
    minutes: float,
    megabytes: Callable[[float], float],
    descriptors: Callable[[float], float] = lambda _h: 20,
) -> list[Life]:
    """Samples every 2 s with a noise of 0.1 MB; both functions are of hours."""
    rng = np.random.default_rng(0)
    samples = []
    for at_s in np.arange(0.0, 60 * minutes, 2.0):
        size = int(MB * (megabytes(at_s / 3600) + 0.1 * rng.normal()))
        samples.append(Sample(float(at_s), size, size, int(descriptors(at_s / 3600)), 5))
    return [Life(1, 0.0, samples)]


@pytest.mark.parametrize(
    ("minutes", "megabytes", "expected"),
    [
        (45, lambda h: 300.0, FLAT),
        (45, lambda h: 300.0 + 3.0 * h, FLAT),  # 1 % per hour
        (45, lambda h: 300.0 + 9.0 * h, GROWS),  # 3 %
        (20, lambda h: 300.0 + 60.0 * h, GROWS),
        (45, lambda h: 300.0 - 100.0 * h, FLAT),  # it shrinks
        (45, lambda h: 300.0 - 200.0 * np.exp(-h * 60), FLAT),  # the warm-up does not count
        (45, lambda h: 300.0 + 6.0 * h, UNDECIDED),  # as fast as is allowed
        (10, lambda h: 300.0 + 60.0 * h, UNDECIDED),  # too short
    ],
)
def test_memory(minutes: float, megabytes: Callable[[float], float], expected: str) -> None:
    held = judge(life(minutes, megabytes))
    assert held["memory"] == expected, held
    assert held["descriptors"] == (FLAT if minutes > 15 else UNDECIDED)


def test_a_leak_of_descriptors_is_found() -> None:
    held = judge(life(45, lambda h: 300.0, lambda h: 20 + 10 * h))
    assert held["memory"] == FLAT and held["descriptors"] == GROWS and held["threads"] == FLAT


def test_the_longest_life_is_judged() -> None:
    lives = [*life(20, lambda h: 300.0 + 60.0 * h), *life(30, lambda h: 300.0)]
    held = judge(lives)
    assert held["lives"] == 2 and held["minutes"] == pytest.approx(30, abs=0.1)
    assert held["memory"] == FLAT


def test_the_interval_of_a_slope_covers_the_truth() -> None:
    """In about 95 % of 400 tries with noise that is new each minute."""
    rng, covered = np.random.default_rng(1), 0
    at_s = np.arange(0.0, 1200.0, 20.0)
    for _ in range(400):
        noise = np.repeat(rng.normal(size=20), 3)
        _, _, low, high = slope_per_hour(at_s, 100.0 + 5.0 * at_s / 3600 + noise)
        covered += low <= 5.0 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_this_process_is_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os
    import time

    from robot_rl.bench.faults import soak_memory

    monkeypatch.setattr(soak_memory, "EVERY_S", 0.01)
    with Sampler(lambda: {"me": os.getpid(), "nobody": 2**22 + 1}, tmp_path / "samples") as sampler:
        time.sleep(0.1)
    lives = sampler.lives()
    sample = lives["me"][0].samples[-1]
    assert sample.resident > 10 * MB and sample.descriptors > 2 and sample.threads >= 2
    assert lives["nobody"][0].samples == []
    assert len((tmp_path / "samples").read_text().splitlines()) == len(lives["me"][0].samples)


# --- ticks and words -----------------------------------------------------------------------------


def command(driver: Driver) -> Command:
    return Command(0, 0.0, driver, "lease", Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])))


def test_missed_ticks_are_counted_within_episodes_only() -> None:
    periods = soak_graph.Periods()
    for at_s in (0.0, 0.1, 0.2, 0.5, 0.6):  # two are missing
        periods.add(at_s, command(Driver.POLICY))
    periods.add(0.7, command(Driver.RESET))
    for at_s in (3.0, 3.1):
        periods.add(at_s, command(Driver.CORRECTION))
    figures = periods.figures(0.1)
    assert (figures["control_ticks"], figures["control_ticks_missed"], figures["gaps"]) == (5, 2, 1)
    assert figures["gap_ms_max"] == pytest.approx(300.0)


def test_each_process_is_spared_for_long() -> None:
    import random

    found = soak_lockstep.victims(60.0, 60.0, random.Random(0))
    names = [name for name, _ in found]
    assert len(found) == 59 and set(names[:25]) == {"actor"} and set(names[25:45]) == {"learner"}
    assert set(names[45:]) == {"actor", "learner", "command"}
    assert [at_s for _, at_s in found] == [60.0 * (i + 1) for i in range(59)]


def figures(**wrong: Any) -> dict[str, Any]:
    held = judge(life(45, lambda h: 300.0))
    return {"minutes": 45.0, "processes": {"gate": held}, **NOTHING, **wrong}


@pytest.mark.parametrize(
    "wrong", [{"rows_lost": 1}, {"rows_doubled": 1}, {"processes_that_ended": 1}]
)
def test_what_is_wrong_fails(wrong: dict[str, int]) -> None:
    (name,) = wrong
    assert endurance.failed({"graph": figures(**wrong)}) == [f"graph: {name} 1"]
    assert endurance.text({"graph": figures(**wrong)})[-1] == f"graph: {name} 1"


def test_what_grows_fails() -> None:
    found = {"graph": figures(processes={"gate": judge(life(45, lambda h: 300.0 + 60.0 * h))})}
    assert endurance.failed(found) == ["graph: memory of gate: grows"]
    assert "+60." in "\n".join(endurance.text(found))


def test_nothing_wrong_is_said() -> None:
    assert endurance.failed({"graph": figures()}) == []
    assert endurance.text({"graph": figures()})[-1].startswith("nothing lost")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--only", "grap"], "did you mean 'graph'"), (["--minutes", "0"], "more than 0")],
)
def test_wrong_options_are_explained(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "endurance", *words]) == 2
    assert message in capsys.readouterr().err


# --- the real thing, short -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_six_kills_lose_nothing_and_a_row_that_is_taken_away_is_missed(tmp_path: Path) -> None:
    found = soak_lockstep.soak(1.75, tmp_path, kill_every_s=15.0)
    assert endurance.failed({"lockstep": found}) == [], endurance.text({"lockstep": found})
    assert found["kills"] == 6 and found["rows"] > 1000 and found["gradient_updates"] > 0
    run_dir = tmp_path / "run"
    stores = run_dir / "arms" / "arm1" / "actor.sqlite", run_dir / "learner.sqlite"
    assert compared(stores) == {}
    spoil(stores[1], "DELETE FROM steps WHERE episode=1 AND step=2")
    assert compared(stores)["rows_lost"] >= 1
