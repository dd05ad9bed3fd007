"""Labels: what may be said of an episode afterwards, how labels are numbered, whose word counts.

Rows are never changed. A correction is one more label, an undo is a label that names another one of
the same author; the newest word stands. Between sources: person > predicate > classifier > vlm; see
`Review.outcome`.

What people say, with what `value` and `step` hold:

    reward       value of step `step`; gives an unlabelled step its reward, or corrects it
    success      1 the episode succeeded, 0 it failed
    neutral      neither: whatever was said or recorded about success does not count, and the
                 episode is kept out until somebody says success again; value is not used
    exclude      1 leave the episode out of training and exports, 0 take it back in
    keep_from    steps before `step` are trimmed; value is not used
    keep_to      steps after `step` are trimmed; value is not used
    leave_out    1 step `step` is left out of training, 0 it is taken back in; exports keep it
    shows        1 the moment that step `step` led to shows success, 0 it does not
    undo         value is the number of the author's label that does not count any more; an undo of
                 `shows` takes back all of the author's `shows` with the same stamp

What the console says in a person's name:

    drove        the person drove `value` steps of the episode

What models and the task's own rule say:

    vlm_success      1 the episode succeeded, 0 it failed, as a vision-language model says
    success_score    how sure its source is, in [0, 1], that what step `step` led to shows success
    progress         how far the task has come at frame `step`, in [0, 1]
    progress_change  change from an earlier frame to frame `step`, in [-1, 1]: above 0 the share of
                     the way left that was done, below 0 the share of the way done that was undone
    model_reward     the reward that a model gives for arriving at frame `step`
    action_spread    nobody recorded the action of step `step`, it was inferred; how far the parts
                     of the model disagree about it

Numbers. A label is (episode, author, number), and the same number again is the same row, so that
what is said twice is kept once. An author who judges each step or frame in its order has a number
for each beforehand: `of_step`, `of_frame`. All others take the next free one (`Store.next_label`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from robot_rl.errors import StoreError
from robot_rl.store.rows import MAX_NUMBER
from robot_rl.types import EpisodeId, Label

SHOWS = "shows"
DROVE = "drove"
INVERSE = "inverse"
"""Source and author of what an inverse dynamics model says (`data.inverse`)."""

VLM_SUCCESS = "vlm_success"
SUCCESS_SCORE = "success_score"
PROGRESS = "progress"
PROGRESS_CHANGE = "progress_change"
MODEL_REWARD = "model_reward"
ACTION_SPREAD = "action_spread"
PREDICATE = "predicate"
"""Source and author of what the task's own rule says."""

LEARNER_SOURCES = ("vlm", "progress", "preference")
"""Sources that run beside a learner: their labels stay in its store."""

PER_STEP = 2  # numbers that an author has for a step and the frame before it


def of_frame(frame: int) -> int:
    """Number of what an author says of a frame."""
    return PER_STEP * frame


def of_step(step: int) -> int:
    """Number of what an author says of a step."""
    return PER_STEP * step + 1


OF_A_STEP = ("reward", "keep_from", "keep_to", "leave_out", SHOWS)
OF_AN_EPISODE = ("success", "neutral", "exclude", "undo")
KINDS = OF_A_STEP + OF_AN_EPISODE
"""What a person may say."""

FOLDED = (*KINDS, VLM_SUCCESS)
"""What `review` reads."""


@dataclass(frozen=True, slots=True)
class Review:
    """The newest word on an episode.

    excluded: out of training and exports, because somebody wants it so or it is neutral;
    success: None = no person has said; neutral: somebody has said that it is neither success nor
    failure, whatever was recorded; first, last: steps that are kept, last None = to the end;
    rewards: step -> reward given afterwards; left_out: steps inside that are not learned from;
    shows: step -> whether what it led to shows success; model_success: the newest word of a
    vision-language model, None = it has said nothing.
    """

    excluded: bool = False
    success: bool | None = None
    neutral: bool = False
    first: int = 0
    last: int | None = None
    rewards: Mapping[int, float] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    shows: Mapping[int, bool] = field(default_factory=dict)
    model_success: bool | None = None

    def outcome(self, recorded: bool | None) -> bool | None:
        """Whether the episode succeeded; None = nobody knows, or it is neutral.

        recorded: success of the last step, by predicate, classifier or a person's key; counts more
        than a vision-language model, and less than what people said.
        """
        if self.success is not None or self.neutral:
            return self.success
        return self.model_success if recorded is None else recorded

    def keeps(self, step: int) -> bool:
        """Whether a step survives exclusion and trimming; `left_out` is not looked at."""
        inside = self.first <= step and (self.last is None or step <= self.last)
        return inside and not self.excluded


def standing(labels: Iterable[Label]) -> list[Label]:
    """The labels of one episode that nobody has taken back, oldest first; without the undos.

    Labels of several authors are ordered by their stamps.
    """
    said = sorted(labels, key=lambda x: (x.stamp_ns, x.label))
    undone = {(x.author, round(x.value)) for x in said if x.kind == "undo"}
    moments = {(x.author, x.stamp_ns) for x in said if (x.author, x.label) in undone}

    def stands(x: Label) -> bool:  # one press of `shows` is many labels: one per step, one stamp
        taken_back = x.kind == SHOWS and (x.author, x.stamp_ns) in moments
        return x.kind != "undo" and not taken_back and (x.author, x.label) not in undone

    return [x for x in said if stands(x)]


def review(labels: Iterable[Label]) -> Review:
    """Fold the labels of one episode; other kinds (a model's scores) are ignored."""
    excluded, success, neutral, first, last = False, None, False, 0, None
    rewards: dict[int, float] = {}
    left_out: set[int] = set()
    shows: dict[int, bool] = {}
    model_success = None
    for label in standing(labels):
        match label.kind, label.step:
            case "exclude", _:
                excluded = label.value > 0.0
            case "success", _:
                success, neutral = label.value > 0.0, False
            case "neutral", _:
                success, neutral = None, True
            case "keep_from", int(step):
                first = step
            case "keep_to", int(step):
                last = step
            case "reward", int(step):
                rewards[step] = label.value
            case "leave_out", int(step):
                (left_out.add if label.value > 0.0 else left_out.discard)(step)
            case "shows", int(step):
                shows[step] = label.value > 0.0
            case "vlm_success", _:
                model_success = label.value > 0.0
            case _:
                pass
    return Review(
        excluded or neutral,
        success,
        neutral,
        first,
        last,
        rewards,
        frozenset(left_out),
        shows,
        model_success,
    )


def who_drove(labels: Iterable[Label]) -> dict[EpisodeId, dict[str, int]]:
    """Episode -> person -> steps that this person drove, as far as a console knew."""
    found: dict[EpisodeId, dict[str, int]] = {}
    for label in labels:
        if label.kind == DROVE:
            steps = found.setdefault(label.id, {})
            steps[label.author] = steps.get(label.author, 0) + round(label.value)
    return found


def check_label(label: Label, steps: int) -> Label:
    """Return `label` if it makes sense for an episode of `steps` steps.

    Raises:
        StoreError: unknown kind, a value beyond `MAX_NUMBER`, a step that does not exist, or a step
            where none belongs.
    """
    wrong = ""
    if not abs(label.value) <= MAX_NUMBER:
        wrong = f"the value {label.value:g}"
    elif label.kind not in KINDS:
        wrong = f"kind '{label.kind}'"
    elif label.kind in OF_A_STEP and (label.step is None or not 0 <= label.step < steps):
        wrong = f"{label.kind} of step {label.step} in an episode of {steps} steps"
    elif label.kind in OF_AN_EPISODE and label.step is not None:
        wrong = f"{label.kind} with a step"
    if wrong:
        raise StoreError(
            "this label says nothing about the episode",
            expected=f"{', '.join(OF_A_STEP)} with a step, or {', '.join(OF_AN_EPISODE)} without",
            got=wrong,
            fix="see robot_rl/store/labels.py for the kinds",
        )
    return label
