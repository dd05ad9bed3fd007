"""kill -9 of a recording process at random moments: at most the step in flight is lost."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId
from tests.support.kills import committed_and_put
from tests.support.link_programs import ACTOR, RUN, SPEC, STEPS, Program

KILLS = 10


def test_kill_at_random_moments_loses_at_most_the_step_in_flight(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    program = Program("writer", tmp_path)
    for kill in range(KILLS):
        program.start()
        time.sleep(rng.uniform(0.0, 0.3))
        program.kill()
        committed, put = committed_and_put(program.lines())
        with Store(tmp_path / "actor.sqlite", spec=SPEC) as store:
            store.verify()
            steps = {(e.id.episode, s.step) for e in store.episodes() for s in store.steps(e.id)}
            assert committed <= steps <= put
            assert len(put - committed) <= kill + 1  # one in flight per kill
            for episode in store.episodes():
                indices = [s.step for s in store.steps(episode.id)]
                frames = [f.frame for f in store.frames(episode.id)]
                assert indices == list(range(len(indices)))
                assert frames == list(range(len(indices) + 1))  # a step never lacks its frames
    assert len(committed) > 5 * KILLS
    with Store(tmp_path / "actor.sqlite", spec=SPEC) as store:
        store.recover(RUN, ACTOR)
        for record in store.episode_summaries():
            whole = record.steps == STEPS
            assert record.ending is (Ending.TRUNCATED if whole else Ending.ABORTED)
        assert store.next_episode(RUN, ACTOR) == len(store.episodes())
        assert store.ending(EpisodeId(RUN, ACTOR, 10**6)) is None
