"""The learner: rows in, gradient steps within a budget, versioned weights and checkpoints out.

    ingest()        new rows of the store -> replay; every practice step earns `utd` updates
    updates_due()   how many of them may be done now; 0 = idle (nothing new to learn from)
    update(n)       do them
    weights()       the newest weights, published at most every `publish_period_s`
    save(), load()  atomic checkpoint; training goes on bit for bit as if never interrupted, until
                    the replay is full: then what it has forgotten is not read again

The learner knows neither the robot nor the link: its owner (lockstep loop, learner process) calls
these methods in a loop of its own. None of them waits for new rows.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from robot_rl.config.run_folder import CHECKPOINTS, LEARNER_METRICS
from robot_rl.errors import CheckpointError, RobotRLError, SetupError, StoreError
from robot_rl.learn import ranks
from robot_rl.learn.algos.agent import ActorCriticConfig
from robot_rl.learn.algos.base import AlgorithmConfig
from robot_rl.learn.checkpoint import Checkpoint, CheckpointFolder
from robot_rl.learn.compiling import Compiling
from robot_rl.learn.diagnostics import (
    PROBE_ROWS,
    Diagnostics,
    Finding,
    Setup,
    Symptoms,
    as_line,
    probe,
)
from robot_rl.learn.frames import PLACES, in_memory, on_device, on_disk
from robot_rl.learn.metrics import MetricSink
from robot_rl.learn.mirror import Reflection
from robot_rl.learn.replay import Batch, Replay
from robot_rl.learn.replay.tail import tail_of
from robot_rl.learn.room import Room
from robot_rl.learn.scaling import Scaling
from robot_rl.learn.versions import Kept, Versions
from robot_rl.nets.cpu import keep_freed_memory
from robot_rl.ports import Clock
from robot_rl.reward.assembly import Assembly
from robot_rl.spec import Spec
from robot_rl.store.summary import EpisodeRecord
from robot_rl.system.clock import WallClock
from robot_rl.types import EpisodeId, Row, Weights

log = logging.getLogger(__name__)

FEW_ROWS = 8  # a read of more may have been cut by its bytes: large pictures
ROWS_PER_READ = 2048  # bounds the memory of one read of the store
WATCH_UPDATES = 10  # between two looks at the count of bad steps: each waits for the device
MAX_BAD_STEPS = 3  # non-finite gradients in a row before the last good state is restored
PROBE_UPDATES = 1000  # gradient steps between looks into the networks, of a few ms each
IDLE_LINE_S = 10.0  # between metric lines without updates, which say why there are none
REWARD_FIX = "what is known is learned from; look at the server (docs/vlm.md)"
MAX_ROLLBACKS = 3  # after so many without progress, the data or the config is at fault


class RowSource(Kept, Protocol):
    """The part of `store.Store` that the learner needs."""

    def rows_since(self, cursor: int, limit: int) -> tuple[list[Row], int]:
        """Return up to `limit` rows after `cursor`, in commit order, and the new cursor."""
        ...

    def rows_of(self, id: EpisodeId, until: int) -> list[Row]:
        """Return all rows of one episode up to a cursor, in commit order."""
        ...

    def episode_summaries(self) -> list[EpisodeRecord]:
        """Return the figures of all episodes, in commit order."""
        ...


class Scorer(Protocol):
    """A reward model beside the learner, such as `reward.scorer.FrameScorer`."""

    def turn(self) -> int:
        """Write labels for the frames that have come in; return how many frames."""
        ...


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Update budget, publication and checkpoints."""

    utd: float = 4.0  # gradient steps per practice step; SERL's 4:1, RLPD goes to 20
    max_backlog: int = 1000  # gradient steps owed at most; more are dropped: no over-training
    min_steps: int = 100  # practice steps before learning starts (HIL-SERL's training_starts)
    pretrain_updates: int = 0  # gradient steps on demonstrations and data before any practice
    init_from: str = ""  # run folder whose newest checkpoint the networks start from (WSRL)
    capacity: int = 200_000  # steps in replay, as HIL-SERL; 5.5 hours at 10 Hz
    frames: str = "memory"  # | disk, for more images than memory | device: images on the GPU
    prefetch: bool = True  # with images, draw the next batch during an update; same draws
    recent_fraction: float = 0.0  # share of online draws taken from the newest recent_steps
    recent_steps: int = 1000
    mirror: bool = False  # half of the rows as seen in a mirror, left <-> right (learn.mirror)
    publish_period_s: float = 1.0  # 0 = whenever anything was learned (lockstep: reproducible)
    checkpoint_updates: int = 5000  # gradient steps between automatic checkpoints; 0 = never
    keep_checkpoints: int = 3  # the newest ones; the best one is kept, too
    log_updates: int = 200  # gradient steps between metric lines
    device: str = "auto"  # cpu | cuda | cuda:1 | auto: a GPU where there is one
    compile: bool = False  # torch.compile at once; needs a C++ compiler, on a GPU nothing more
    compile_after_updates: int = 30_000  # in lockstep by itself, when it has paid; 0 = never
    threads: int = 0  # of torch; 0: one, as simulator, gate and actor need cores; in lockstep two
    tensorboard: bool = False

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.utd <= 0.0 or self.max_backlog < 1 or self.capacity < 1:
            raise ValueError("utd, max_backlog and capacity must be positive")
        counts = (self.pretrain_updates, self.checkpoint_updates, self.compile_after_updates)
        if min(self.min_steps, self.publish_period_s, *counts) < 0:
            raise ValueError("min_steps, publish_period_s and counts of updates must be >= 0")
        if not 0.0 <= self.recent_fraction <= 1.0 or self.recent_steps < 1:
            raise ValueError("recent_fraction must lie in [0, 1], recent_steps be at least 1")
        if self.frames not in PLACES:
            raise ValueError(f"frames must be one of {PLACES}, got {self.frames!r}")
        if min(self.keep_checkpoints, self.log_updates) < 1 or self.threads < 0:
            raise ValueError("keep_checkpoints and log_updates must be >= 1, threads >= 0")

    @property
    def resolved_device(self) -> str:
        """The device of the tensors; with several ranks, each takes the GPU of its own number.

        Raises:
            SetupError: a GPU is asked for and there is none.
        """
        if self.device == "auto":
            index = os.environ.get("LOCAL_RANK", "0")
            return f"cuda:{index}" if torch.cuda.is_available() else "cpu"
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise SetupError(
                "the learner was told to use a GPU, and torch sees none",
                expected=f"a CUDA device for learner.device={self.device}",
                got=f"torch {torch.__version__}, no CUDA",
                fix="install the CUDA build of torch and the driver, or learner.device=cpu",
            )
        return self.device


class Learner:
    """One skill being learned.

    Args:
        algo: config of the algorithm (`experiment.algorithm`).
        store: where the rows come from.
        run_dir: gets `learner.jsonl` and `checkpoints/`.
        seed: of networks, draws and batches.
        mirror: what `config.mirror` needs: signs of each part of the state, from the task.
        assembly: how rewards are made of what was recorded.
        scorers: add their models' labels to the store before its rows are read.
        trouble: says, for people, what keeps labels from coming in; "" = nothing.
        clock: paces publication and the lines of an idle learner only.
    """

    def __init__(
        self,
        config: LearnerConfig,
        algo: AlgorithmConfig,
        spec: Spec,
        store: RowSource,
        *,
        run_dir: Path,
        seed: int,
        mirror: Mapping[str, Sequence[int]] | None = None,
        assembly: Assembly | None = None,
        scorers: Sequence[Scorer] = (),
        trouble: Callable[[], str] = lambda: "",
        clock: Clock | None = None,
    ) -> None:
        torch.set_num_threads(config.threads or 1)
        keep_freed_memory()
        self.config, self.spec, self.store = config, spec, store
        if isinstance(algo, ActorCriticConfig):
            algo = algo.paced(config.utd)
        self.algo = algo.make(spec, seed, config.resolved_device)
        self._compiling = Compiling(self.algo, config.compile, config.compile_after_updates)
        view = replace(
            self.algo.view,
            recent_fraction=config.recent_fraction,
            recent_steps=config.recent_steps,
            assembly=assembly or Assembly(),
        )
        self._scorers, self._trouble = tuple(scorers), trouble
        places = {"disk": on_disk(run_dir / "replay"), "device": on_device(self.algo.device)}
        keys = self.algo.observation_keys
        digest = self.algo.net.digest(self.algo.actor_state())
        self.replay = Replay(
            spec,
            config.capacity,
            keys,
            view=view,
            allocate=places.get(config.frames, in_memory),
            digest=digest,
        )
        self.publish_period_s = config.publish_period_s  # may be changed at any time
        self.updates = 0  # gradient steps done, pre-training included
        self.updates_per_s = 10.0  # in the newest call of `update`
        self.metrics: dict[str, Any] = {}  # the newest line, text included, for dashboards
        self._seed, self._rng = seed, np.random.default_rng(seed)
        prefetch = config.prefetch and self.algo.net.encoder is not None
        self._pool = ThreadPoolExecutor(1, "prefetch") if prefetch else None
        self._ahead: Future[Batch] | None = None
        self._asked, self._more, self._room = (0, 0.0), False, Room()
        self._diverge()
        self._mirror = Reflection.of(mirror, spec) if config.mirror else None
        self._clock = clock or WallClock()
        self._checkpoints = CheckpointFolder(run_dir / CHECKPOINTS, config.keep_checkpoints)
        self._sink = MetricSink(
            run_dir / LEARNER_METRICS, run_dir / "tensorboard" if config.tensorboard else None
        )
        self._cursor = 0
        self._credit = 0.0  # updates owed
        self._pretrain_left = config.pretrain_updates
        self.may_pretrain = True  # False while the demonstrations are being recorded
        self._weights: Weights | None = None
        self._versions = Versions(store)
        self._published_updates, self._published_s = -1, -math.inf
        self._saved_updates = self._logged_updates = 0
        self._busy_s, self._busy_updates = 0.0, 0
        self._rollbacks, self._scaling = 0, Scaling()
        if config.init_from:
            self._start_from(Path(config.init_from))
        self._good = self.algo.state_dict()
        self._diagnostics, self._setup = Diagnostics(), Setup.of(self.algo, spec)
        self._figures: dict[str, float] = {}  # newest figures of algorithm and probe
        self._publications: deque[tuple[int, float]] = deque(maxlen=1000)  # version, when
        self._heard_s = self._stepped_s = self._logged_s = self._clock.now_s()
        self._silent_s, self._probed_updates = 0.0, -PROBE_UPDATES

    @property
    def env_steps(self) -> int:
        """Practice steps seen so far."""
        return self.replay.env_steps

    def ingest(self) -> int:
        """Take every new row of the store; return how many practice steps were among them."""
        new, now_s, before = 0, self._clock.now_s(), self._cursor
        for scorer in self._scorers:
            scorer.turn()
        while True:
            rows, cursor = self.store.rows_since(self._cursor, ROWS_PER_READ)
            new += self.replay.ingest(rows)
            self._cursor = cursor
            if len(rows) <= FEW_ROWS:
                break
        self._credit = min(self._credit + self.config.utd * new, float(self.config.max_backlog))
        self._heard_s = now_s if self._cursor != before else self._heard_s
        self._stepped_s = now_s if new else self._stepped_s
        self._silent_s = now_s - self._heard_s
        if self._cursor and now_s - self._logged_s >= IDLE_LINE_S and not self.updates_due():
            self._log({})
        return new

    def updates_due(self) -> int:
        """Return how many gradient steps may be done now."""
        if self._pretrains:
            return self._pretrain_left if self.may_pretrain else 0
        practised = self.env_steps >= max(self.config.min_steps, 1)
        return int(self._credit) if practised and self.replay.can_sample else 0

    @property
    def _pretrains(self) -> bool:
        return bool(self._pretrain_left and self.replay.len_demo)

    def status(self) -> dict[str, int]:
        """Return what the actor asks for: updates done, owed, and in the newest weights."""
        return {
            "updates": self.updates,
            "env_steps": self.env_steps,
            "updates_owed": self.updates_due(),
            "published_updates": self._published_updates,
            "published_version": self._versions.newest,
            "demo_rows": self.replay.len_demo,  # usable ones
        }

    def update(self, count: int) -> int:
        """Do up to `count` gradient steps (whole updates of the algorithm, at least one).

        Returns the gradient steps done.

        Raises:
            SpecError: there is nothing to learn from.
            RobotRLError: gradients stay non-finite although the last good state was restored.
            ConfigError: the device has too little memory, also for half of a batch.
        """
        began, per_update, done = time.perf_counter(), self.algo.steps_per_update, 0
        metrics: dict[str, Tensor] = {}
        self._compiling.if_due(self.updates, lockstep=not self.publish_period_s)
        self._scaling.fit_if_due(self.algo, self.replay, self._mirror, self.updates)
        for left in reversed(range(max(count // per_update, 1))):
            self._more = left > 0
            try:
                metrics = self.algo.update(self._sample)
            except torch.OutOfMemoryError as error:
                self._room.short(error)
                continue
            done += per_update
            if left % WATCH_UPDATES == 0:
                self._watch(metrics)
        self.updates += done
        if self._pretrains:  # as in `updates_due`; otherwise practice steps pay for updates
            self._pretrain_left = max(0, self._pretrain_left - done)
        else:
            self._credit -= done
        busy_s = time.perf_counter() - began
        self.updates_per_s = done / max(busy_s, 1e-9)
        self._busy_s += busy_s
        self._busy_updates += done
        if self.updates - self._logged_updates >= self.config.log_updates:
            self._log(metrics)
        every = self.config.checkpoint_updates
        if every and self.updates - self._saved_updates >= every:
            self.save_or_warn()
        return done

    def weights(self) -> Weights:
        """Return the newest published weights. New ones get the next version, and hold no NaN."""
        now_s = self._clock.now_s()
        due = now_s - self._published_s >= self.publish_period_s
        if self._weights is None or (due and self.updates != self._published_updates):
            tensors = self.algo.actor_state()
            if all(bool(torch.isfinite(v).all()) for v in tensors.values()):
                try:
                    self._publish(tensors, now_s)
                except StoreError as error:  # a full disk has no room for a new number
                    if self._weights is None:
                        raise
                    self._published_s = now_s
                    log.error("no new weights: %s", error)
        if self._weights is None:
            raise RobotRLError(
                "the policy holds NaN before anything was published",
                expected="finite weights",
                got=f"non-finite after {self.updates} updates",
                fix="check the loaded checkpoint and the observations",
            )
        return self._weights

    def save(self, score: float | None = None) -> Path:
        """Write a checkpoint. `score`: success in [0, 1] if evaluated; the best one is kept.

        Raises:
            CheckpointError: writing failed.
        """
        tensors = {k: v.cpu() for k, v in self.algo.state_dict().items()}
        facts = {
            "updates": self.updates,
            "version": self._versions.newest,
            "cursor": self._cursor,
            "credit": self._credit,
            "pretrain_left": self._pretrain_left,
            "rng": self._rng.bit_generator.state,
            "scaled_frames": self._scaling.frames,
            "plain_spec": self.spec.without_base().hash,
        }
        path = self._checkpoints.folder
        if not ranks.rank():  # the other ranks keep the same state, and so all go back together
            path = self._checkpoints.save(Checkpoint(tensors, facts, self.spec.hash, score))
        self._good, self._rollbacks = tensors, 0
        self._saved_updates = self.updates
        return path

    def save_or_warn(self) -> None:
        """Write a checkpoint; a failure is logged and does not end the training."""
        try:
            self.save()
        except CheckpointError as error:
            self._saved_updates = self.updates
            log.error("%s", error)

    def load(self) -> bool:
        """Continue from the newest usable checkpoint, replaying the store up to it.

        Returns False when there is none. Call before `ingest`.

        Raises:
            CheckpointError: there are checkpoints, and none fits this run.
        """
        checkpoint = self._checkpoints.load(self.spec.hash)
        self._skip()
        if checkpoint is None:
            return False
        facts: dict[str, Any] = checkpoint.facts
        self.algo.load_state_dict(checkpoint.tensors)
        self._good = checkpoint.tensors
        self.updates = facts["updates"]
        self._versions.at_least(facts["version"])
        self._saved_updates = self._logged_updates = self.updates
        self._rng.bit_generator.state = facts["rng"]
        while self._cursor < facts["cursor"]:
            rows, cursor = self.store.rows_since(
                self._cursor, min(ROWS_PER_READ, facts["cursor"] - self._cursor)
            )
            if not rows:
                log.error("the store ends before the checkpoint: %d rows missing", facts["cursor"])
                break
            self.replay.ingest(rows)
            self._cursor = cursor
        self._credit, self._pretrain_left = facts["credit"], facts["pretrain_left"]
        self._scaling.frames = facts.get("scaled_frames")  # older runs keep what they have
        self._diverge()
        log.info("continued from %d updates, %d env steps", self.updates, self.env_steps)
        return True

    def _skip(self) -> None:
        """Begin to read where the replay would have forgotten everything before."""
        tail = tail_of(self.store.episode_summaries(), self.spec.hash, self.config.capacity)
        if not tail.gone:
            return
        log.info("%d steps are not read again: the replay is too small for them", tail.env_steps)
        self.replay.leave_out(tail.gone, tail.env_steps)
        for episode in tail.early:
            self.replay.ingest(self.store.rows_of(episode, tail.cursor))
        self._cursor = tail.cursor

    def close(self) -> None:
        """Close the metrics file, and end the thread that draws batches ahead."""
        if self._pool is not None:
            self._pool.shutdown()
        self._sink.close()

    def _start_from(self, run_dir: Path) -> None:
        """Take over the networks of another run, not its counters.

        Raises:
            CheckpointError: that run has no usable checkpoint of this spec and algorithm.
        """
        plain = self.spec.without_base().hash  # this run may lack the base that taught that one
        checkpoint = CheckpointFolder(run_dir / CHECKPOINTS).load(self.spec.hash, plain)
        if checkpoint is None:
            raise CheckpointError(
                f"nothing to start from in {run_dir}",
                expected="a run folder with checkpoints/",
                got="no checkpoint",
                fix="name a finished run in learner.init_from",
            )
        self.algo.start_from(checkpoint.tensors)
        self._scaling.frames = None
        log.info("networks of %s taken over", run_dir)

    def _diverge(self) -> None:
        """Give each rank but the first random numbers of its own: equal networks, other draws."""
        if ranks.rank():
            self._rng = np.random.default_rng((self._seed, ranks.rank(), self.updates))
            self.algo.generator.manual_seed(int(self._rng.integers(2**62)))

    def _sample(self, batch_size: int, demo_fraction: float) -> Batch:
        """Return a batch, drawn now or ahead; the draws come in the same order either way.

        A request that was made twice in a row is drawn ahead if more updates are sure to follow.
        """
        asked = (self._room.of(batch_size), demo_fraction)
        ahead = None if self._ahead is None else self._ahead.result()
        usual, self._asked = asked == self._asked, asked
        batch = ahead if ahead is not None and usual else self._draw(*asked)
        if self._pool is not None and usual and self._more:
            self._ahead = self._pool.submit(self._draw, *asked)
        else:
            self._ahead = None
        return batch

    def _draw(self, batch_size: int, demo_fraction: float) -> Batch:
        batch = self.replay.sample(batch_size, demo_fraction, self._rng)
        return batch if self._mirror is None else self._mirror(batch, self._rng)

    def _publish(self, tensors: dict[str, Tensor], now_s: float) -> None:
        data = safetensors.torch.save({k: v.cpu().contiguous() for k, v in tensors.items()})
        version = self._versions.next()
        self._weights = Weights(version, hashlib.sha256(data).hexdigest(), data)
        self._published_updates, self._published_s = self.updates, now_s
        self._publications.append((version, now_s))

    def _watch(self, metrics: Mapping[str, Tensor]) -> None:
        """Restore the last good state after several non-finite gradients in a row."""
        if (bad := int(metrics["optimizer/bad_in_a_row"])) < MAX_BAD_STEPS:
            return
        self._rollbacks += 1
        if self._rollbacks > MAX_ROLLBACKS:
            raise RobotRLError(
                "gradients stay non-finite",
                expected=f"finite ones after {MAX_ROLLBACKS} returns to the last good state",
                got=f"{int(metrics['optimizer/skipped'])} skipped steps",
                fix="look for extreme rewards or observations, or lower algo.learning_rate",
            )
        log.error("%d bad steps in a row: back to the last good state", bad)
        self.algo.load_state_dict(self._good)
        self._scaling.fit_again()

    def _log(self, metrics: dict[str, Tensor]) -> None:
        new = {k: float(v) for k, v in metrics.items()}
        if metrics and self.updates - self._probed_updates >= PROBE_UPDATES:
            draws = np.random.default_rng(self.updates)  # its own: learning stays the same
            new |= probe(self.algo, self.replay.sample(PROBE_ROWS, 0.5, draws))
            self._probed_updates = self.updates
        self._figures |= new
        found = self._diagnostics.check(self._diagnose())
        if trouble := self._trouble():
            found += (Finding("reward_model", "warning", trouble, REWARD_FIX),)
        values, text = as_line(found)
        values |= new | {
            "learner/updates": self.updates,
            "learner/utd": self.updates / max(self.env_steps, 1),
            "learner/updates_per_s": self._busy_updates / max(self._busy_s, 1e-9),
            "learner/backlog": self._credit,
            "replay/online": self.replay.len_online,
            "replay/demo": self.replay.len_demo,
            "replay/refused_rows": self.replay.refused_rows,
            "weights/published_version": self._versions.newest,
        }
        if not ranks.rank():
            self._sink.write(self.env_steps, values, **text)
        self.metrics = values | text
        self._logged_updates, self._busy_s, self._busy_updates = self.updates, 0.0, 0
        self._logged_s = self._clock.now_s()

    def _diagnose(self) -> Symptoms:
        """Return the figures that `diagnostics` judges."""
        driving = self.replay.weights_version
        newer_s = (s for version, s in self._publications if version > driving)
        return Symptoms(
            setup=self._setup,
            updates=self.updates,
            env_steps=self.env_steps,
            replay=self.replay.summary(),
            metrics=self._figures,
            silent_s=self._silent_s,
            staleness_s=self._stepped_s - next(newer_s, self._stepped_s),
            backlog=self._credit / self.config.max_backlog,
        )
