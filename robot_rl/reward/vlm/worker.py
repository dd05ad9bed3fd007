"""Labels recorded episodes with what a vision-language model says, beside the running system.

    worker = RewardWorker(store, client, canary, WorkerConfig(),
                          task="put the peg into the hole", camera="image/front")
    worker.start()                                  # or worker.turn() now and then
    worker.trouble                                  # one line for people, "" = there is none

About each finished episode, newest first, it asks whether the last frames show success, and, for a
frame of each second, how far the task is. What it writes (source "vlm", author "MODEL
PROMPT@HASH"):

    success_score   step s: p that the frame it led to shows success
    vlm_success     the episode: 1 or 0, where k of the last n frames agree
    progress        frame f: phi(f); with `fill` also, by author "MODEL PROMPT@HASH held", of every
                    frame: the newest phi that was known there, 0 at the start
    progress_change with `way=change`, in the place of phi(f): what was done since the frame asked
                    about before (VLAC); `fill` adds the changes up, as far as all are known

An episode with a question on which the server fails (a timeout, 5xx) goes behind the others. If the
server fails on this question again and again, but answers others in between, the question is given
up.

An unlabelled answer writes no row. What is in the store is never asked again, so a restart goes on.
Evaluation episodes and aborted ones are left alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError, SpecError, did_you_mean
from robot_rl.reward.vlm.canary import Canary
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.questions import (
    BUSY,
    DOWN,
    TIMEOUT,
    Answer,
    Question,
    QuestionKind,
    integrate,
)
from robot_rl.store.labels import PROGRESS, PROGRESS_CHANGE, SUCCESS_SCORE, VLM_SUCCESS
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Label, Step

log = logging.getLogger(__name__)

SOURCE = "vlm"
HELD = " held"  # ends the author of labels that were filled in
MAX_LOOKED_AT = 100  # episodes per turn: bounds the first turn after a restart
MAX_FAILED = 10  # times that the server fails on one question, and then answers another
WAYS = (QuestionKind.PROGRESS, QuestionKind.CHANGE)  # how progress may be asked
FAILED = (TIMEOUT, BUSY, DOWN)  # the fault may be the server's or the question's


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """How much is asked, and when."""

    success_frames: int = 5  # n last frames; 0 = do not ask about success
    success_needed: int = 3  # k of them
    threshold: float = 0.5  # p from which a frame shows success
    period_s: float = 1.0  # between two frames whose progress is asked; 0 = do not ask
    way: str = "progress"  # since the start; "change": since the frame asked before (VLAC)
    fill: bool = True  # also write the progress of the frames between
    questions_per_turn: int = 64
    tries: int = 2  # in how many turns a question that gets no answer is asked
    canary_every_s: float = 600.0
    again_s: float = 30.0  # after a canary that failed, or an error
    poll_s: float = 1.0  # of the thread, when there is nothing to do

    def __post_init__(self) -> None:
        """Check ranges."""
        k, n = self.success_needed, self.success_frames
        if n and not n < 2 * k <= 2 * n:
            raise ValueError(
                "success_needed must be more than half of success_frames, and not more"
            )
        if self.way not in WAYS:
            raise ValueError(f"way must be one of {', '.join(WAYS)}, got {self.way!r}")
        if self.period_s < 0.0 or not 0.0 < self.threshold < 1.0:
            raise ValueError("period_s must not be negative, threshold lies in (0, 1)")
        if min(self.questions_per_turn, self.tries) < 1 or self.success_frames < 0:
            raise ValueError("questions_per_turn and tries must be at least 1")
        if min(self.canary_every_s, self.again_s, self.poll_s) <= 0.0:
            raise ValueError("canary_every_s, again_s and poll_s must be positive")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A label that is missing. number: the label's step; frames: what is shown, oldest first."""

    id: EpisodeId
    kind: QuestionKind
    number: int
    frames: tuple[int, ...]


class RewardWorker:
    """See the module. `turn` and `trouble` may be called from different threads.

    Args:
        canary: None = nobody checks the server.
        task: what the robot shall do, in words.
        camera: key of the observation.
        now_s, stamp_ns: for tests.

    Raises:
        SpecError: the store has no such camera.
    """

    def __init__(
        self,
        store: Store,
        client: VlmClient,
        canary: Canary | None,
        config: WorkerConfig,
        *,
        task: str,
        camera: str,
        now_s: Callable[[], float] = time.monotonic,
        stamp_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        known = store.spec.observation if store.spec else {}
        if store.spec is None or camera not in known or len(known[camera].shape) != 3:
            raise SpecError(
                "nothing to show a vision-language model",
                expected="a camera of the run",
                got=f"'{camera}' in {store.path.name}",
                fix=did_you_mean(camera, [k for k, v in known.items() if len(v.shape) == 3]),
            )
        self._store, self._client, self._canary, self._config = store, client, canary, config
        self._task, self._camera, self._now_s, self._stamp_ns = task, camera, now_s, stamp_ns
        self._way = QuestionKind(config.way)
        self._stride = max(round(config.period_s * store.spec.control_hz), 1)
        self._seq, self._finished = -1, list[EpisodeId]()
        self._done = set[EpisodeId]()
        self._behind: Counter[EpisodeId] = Counter()  # turns in which the server failed
        self._unanswered: Counter[_Wanted] = Counter()
        self._failed: Counter[_Wanted] = Counter()  # while others were answered
        self._failing = set[_Wanted]()  # since the server last answered
        self._canary_due_s, self._canary_problem = -float("inf"), ""
        self._resume_s, self._trouble, self._said = -float("inf"), "", ""
        self._busy = False  # more to do at once
        self._stop, self._thread = threading.Event(), None

    # -- for the owner ---------------------------------------------------------------------------

    def turn(self) -> int:
        """Do a bounded amount of work; return how many labels were written. Never raises."""
        self._busy = False
        try:
            if self._now_s() < self._resume_s:
                return 0
            self._trouble = ""
            return self._turn()
        except RobotRLError as error:
            self._rest(f"{error.summary}; {error.got}; {error.fix}")
            return 0
        except Exception as error:
            log.exception("reward worker")
            self._rest(f"{type(error).__name__}: {error}")
            return 0

    @property
    def waiting(self) -> int:
        """Episodes that are not labelled yet."""
        return sum(id_ not in self._done for id_ in self._finished)

    @property
    def trouble(self) -> str:
        """Why nothing is labelled now, for people; "" = labels are written."""
        trouble = self._client.trouble or self._trouble
        if not trouble and self._canary_problem:
            trouble = f"canary failed: {self._canary_problem}; nothing is labelled"
        return " ".join(trouble.split())

    def start(self) -> None:
        """Take turns in a thread until `close`."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="vlm-worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is being asked is given up. The client and the store stay open."""
        self._stop.set()
        while self._thread is not None and self._thread.is_alive():
            self._client.interrupt()
            self._thread.join(0.05)
        self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- a turn ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.turn() and not self._busy:
                self._stop.wait(self._config.poll_s)

    def _turn(self) -> int:
        self._find_work()
        first = self._canary_due_s == -float("inf")
        if not (first or self.waiting) or not self._trusted():
            return 0
        looked = 0
        left = (id_ for id_ in self._finished if id_ not in self._done)
        for id_ in sorted(left, key=lambda i: self._behind[i]):
            looked += 1
            steps = self._store.steps(id_)
            wanted = self._wanted(id_, steps)
            frames = self._frames(id_) if wanted else {}
            if wanted and steps[-1].next_frame not in frames:
                continue  # the last frame is stored after its step
            if wanted:
                return self._label(wanted[: self._config.questions_per_turn], frames)
            written = self._conclude(id_, steps)
            if written or looked >= MAX_LOOKED_AT:
                self._busy = True
                return written
        return 0

    def _find_work(self) -> None:
        """Find the finished episodes, newest first."""
        seq = self._store.last_seq()
        if seq == self._seq:
            return
        ends = (Ending.TERMINATED, Ending.TRUNCATED)
        records = self._store.episode_summaries()
        finished = [r.id for r in records if r.ending in ends and r.purpose != "eval"]
        self._finished, self._seq = finished[::-1], seq

    def _trusted(self) -> bool:
        """Whether the canary passed; it is checked again when due."""
        now_s = self._now_s()
        if self._canary is not None and now_s >= self._canary_due_s:
            was = self._canary_problem
            self._canary_problem = self._canary.check(self._client)
            well = not self._canary_problem
            self._canary_due_s = now_s + (
                self._config.canary_every_s if well else self._config.again_s
            )
            if not well and self._canary_problem != was and not self._stop.is_set():
                log.warning("canary failed: %s; nothing is labelled", self._canary_problem)
        return not self._canary_problem

    def _wanted(self, id_: EpisodeId, steps: Sequence[Step]) -> list[_Wanted]:
        """Labels that this model has not given and that are worth asking for."""
        config = self._config
        have = {(x.author, x.kind, x.step) for x in self._store.labels(id_)}
        last = steps[-config.success_frames :] if config.success_frames else []
        wanted = [_Wanted(id_, QuestionKind.SUCCESS, s.step, (s.next_frame,)) for s in last]
        wanted += self._keyframes(id_, steps)
        wanted = [
            w
            for w in wanted
            if (self._client.author(w.kind), _LABEL[w.kind], w.number) not in have
            and self._unanswered[w] < config.tries
            and self._failed[w] < MAX_FAILED
        ]
        # what failed goes last: the first one finds out whether a server is back
        return sorted(wanted, key=lambda w: self._failed[w] + (w in self._failing))

    def _keyframes(self, id_: EpisodeId, steps: Sequence[Step]) -> list[_Wanted]:
        """Where progress is asked, oldest first."""
        if not self._config.period_s:
            return []
        frames, start = sorted({s.next_frame for s in steps}), steps[0].frame
        chosen = sorted({*frames[self._stride - 1 :: self._stride], *frames[-1:]})
        before = (
            [start, *chosen[:-1]] if self._way is QuestionKind.CHANGE else [start] * len(chosen)
        )
        return [_Wanted(id_, self._way, f, (b, f)) for b, f in zip(before, chosen, strict=True)]

    def _frames(self, id_: EpisodeId) -> dict[int, NDArray[np.uint8]]:
        return {f.frame: f.observation[self._camera] for f in self._store.frames(id_)}

    def _label(self, asked: Sequence[_Wanted], frames: Mapping[int, NDArray[np.uint8]]) -> int:
        """Ask, and write what was answered."""
        questions = [
            Question(w.kind, tuple(frames[f] for f in w.frames), self._task) for w in asked
        ]
        answers = self._client.ask(questions)
        rows = self._rows(asked, answers)
        self._store.append(rows)
        for w, answer in zip(asked, answers, strict=True):
            if answer.problem.partition(":")[0] in FAILED:
                self._failing.add(w)
            elif not answer.later:
                self._failing.discard(w)
                self._unanswered[w] += answer.value is None
        self._behind[asked[0].id] += not self._failing.isdisjoint(asked)
        if not all(a.later for a in answers):  # the server answers: failures are the questions' own
            self._failed.update(self._failing)
            self._failing.clear()
        late = next((a for a in answers if a.later), None)
        if late is not None:
            self._rest(late.problem, max(self._client.wait_s, self._config.poll_s))
        self._busy = late is None
        return len(rows)

    def _rows(self, asked: Sequence[_Wanted], answers: Sequence[Answer]) -> list[Label]:
        numbers: dict[str, int] = {}
        rows = []
        for w, answer in zip(asked, answers, strict=True):
            if answer.value is None:
                continue
            author = answer.author
            number = numbers.setdefault(author, self._store.next_label(w.id, author))
            numbers[author] = number + 1
            kind, value = _LABEL[w.kind], answer.value
            rows.append(
                Label(w.id, number, w.number, kind, value, SOURCE, author, self._stamp_ns())
            )
        return rows

    def _conclude(self, id_: EpisodeId, steps: Sequence[Step]) -> int:
        """Write what an episode's answers say together, when everything was asked."""
        labels = self._store.labels(id_)
        rows = self._verdict(id_, steps, labels)
        if self._config.fill and self._config.period_s:
            rows += self._filled(id_, steps, labels)
        self._store.append(rows)
        self._done.add(id_)
        return len(rows)

    def _verdict(
        self, id_: EpisodeId, steps: Sequence[Step], labels: Sequence[Label]
    ) -> list[Label]:
        author, config = self._client.author(QuestionKind.SUCCESS), self._config
        own = [x for x in labels if x.author == author]
        if not config.success_frames or any(x.kind == VLM_SUCCESS for x in own):
            return []
        last = {s.step for s in steps[-config.success_frames :]}
        shows = [x.value >= config.threshold for x in own if x.step in last]
        needed = min(config.success_needed, len(last))
        yes, no = sum(shows), len(shows) - sum(shows)
        if max(yes, no) < needed:
            return []
        number = self._store.next_label(id_, author)
        value = float(yes >= needed)
        return [Label(id_, number, None, VLM_SUCCESS, value, SOURCE, author, self._stamp_ns())]

    def _filled(
        self, id_: EpisodeId, steps: Sequence[Step], labels: Sequence[Label]
    ) -> list[Label]:
        """phi of every frame, held: a potential needs all of them, and may not look ahead."""
        author, way = self._client.author(self._way), self._way
        known = {x.step: x.value for x in labels if (x.kind, x.author) == (_LABEL[way], author)}
        if not known or any(x.author == author + HELD for x in labels):
            return []
        if way is QuestionKind.CHANGE:
            asked = [w.number for w in self._keyframes(id_, steps)]
            curve = integrate([known.get(f) for f in asked])[1:]
            known = dict(zip(asked, curve, strict=True))
        rows, phi = [], 0.0  # the prompt says that nothing is done at the start
        for number, frame in enumerate([steps[0].frame, *(s.next_frame for s in steps)]):
            if (phi := known.get(frame, phi)) is None:
                break  # a change is not known, so neither is any progress after it
            rows.append(
                Label(id_, number, frame, PROGRESS, phi, SOURCE, author + HELD, self._stamp_ns())
            )
        return rows

    def _rest(self, trouble: str, pause_s: float = 0.0) -> None:
        if trouble != self._said and not self._stop.is_set():
            log.warning("no labels now: %s", trouble)
        self._trouble = self._said = trouble
        self._resume_s = self._now_s() + (pause_s or self._config.again_s)


_LABEL = {
    QuestionKind.SUCCESS: SUCCESS_SCORE,
    QuestionKind.PROGRESS: PROGRESS,
    QuestionKind.CHANGE: PROGRESS_CHANGE,
}
