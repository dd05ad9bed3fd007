"""What a step is worth: as recorded, as people say, as models say (`store.review`, `reward`)."""

from __future__ import annotations

import numpy as np

from robot_rl.learn.replay.storage import Episode, Frames, Steps, awaited
from robot_rl.reward.assembly import Assembly, after_failure
from robot_rl.store.labels import review
from robot_rl.types import Label, Step


class Rewards:
    """Writes the columns reward, mask, failed, labelled and kept, and the progress of frames."""

    def __init__(self, steps: Steps, frames: Frames, assembly: Assembly, gamma: float) -> None:
        self._steps, self._frames = steps, frames
        self._assembly, self._gamma = assembly, gamma

    def recorded(self, episode: Episode, row: Step, slot: int) -> None:
        """Keep the reward that came with a step, or a model's where a model gives the rewards."""
        value = np.nan if row.reward is None else row.reward
        if self._assembly.rewards_by:
            value = episode.worth.get(row.next_frame, np.nan)
        self._steps.recorded[slot] = value

    def assign(self, episode: Episode, number: int) -> None:
        """Set the reward of a step, as recorded or as people say; success pays 1 on the last."""
        steps, slot, verdict = self._steps, episode.steps[number], episode.verdict
        reward = verdict.rewards.get(number, float(steps.recorded[slot]))
        success = verdict.outcome(episode.success)
        # a model's rewards may all be below 0: then the 0 of a failure would be the best reward
        pays = success is not None and not self._assembly.rewards_by
        if np.isnan(reward) and pays:
            reward = 0.0
        failed = False
        if number == episode.last:
            said = verdict.success is not None or np.isnan(steps.recorded[slot])
            if said and pays:
                reward = float(bool(success))
            steps.mask[slot] = episode.goes_on and not (said and success)
            failed = not episode.goes_on and success is False
        steps.labelled[slot], steps.failed[slot] = not np.isnan(reward), failed
        reward -= self._assembly.step_cost
        if failed:
            reward += after_failure(self._assembly.lowest, self._gamma)
        steps.reward[slot] = reward if steps.labelled[slot] else 0.0
        steps.kept[slot] = verdict.keeps(number) and number not in verdict.left_out

    def judge_all(self, episode: Episode) -> None:
        """Set the rewards of all steps, and what is known of how the episode ended."""
        outcome = episode.verdict.outcome(episode.success) if episode.over else None
        episode.failed = outcome is False
        episode.alone = bool(outcome) and not self._steps.human[list(episode.steps.values())].any()
        for number in episode.steps:
            self.assign(episode, number)

    def hear(self, episode: Episode, row: Label) -> None:
        """Take a person's label, and judge all steps of the episode by their labels anew."""
        episode.said.append(row)
        episode.verdict = review(episode.said)
        self.judge_all(episode)

    def add_progress(self, episode: Episode, row: Label) -> list[int]:
        """Take a model's progress of a frame; return the numbers of the steps that it changes."""
        assert row.step is not None  # `Replay` refuses others
        if not np.isfinite(row.value):
            return []
        episode.progress[row.step] = row.value
        touched = []
        for frame in range(row.step, row.step + self._assembly.smooth_steps):
            if (slot := episode.frames.get(frame)) is None:
                continue
            self._frames.progress[slot] = self.smooth(episode, frame)
            touched += episode.readers.get(frame, ())
        return touched

    def smooth(self, episode: Episode, frame: int) -> float:
        """Return phi of a frame: the mean progress of it and frames before; NaN while unknown."""
        if frame not in episode.progress:
            return np.nan
        window = range(frame, frame - self._assembly.smooth_steps, -1)
        known = [episode.progress[f] for f in window if f in episode.progress]
        return sum(known) / len(known)

    def add_worth(self, episode: Episode, row: Label) -> list[int]:
        """Take a model's reward for arriving at a frame; return the numbers of those steps."""
        assert row.step is not None  # `Replay` refuses others
        episode.worth[row.step] = row.value
        place = episode.frames.get(row.step, awaited(row.step))
        touched = []
        for number in episode.readers.get(row.step, ()):
            slot = episode.steps[number]
            if self._steps.after[slot] == place:
                self._steps.recorded[slot] = row.value
                self.assign(episode, number)
                touched.append(number)
        return touched

    def add_up(self, episode: Episode) -> None:
        """Write the return to go of every step of an episode.

        One that was cut off goes on with its last reward if that is negative (a cost of time does
        not end with the recording), else with nothing: the sum is a lower bound either way.
        """
        rest = 0.0
        if episode.steps:
            last = episode.steps[max(episode.steps)]
            if self._steps.mask[last] > 0.0 and self._gamma < 1.0:
                rest = min(float(self._steps.reward[last]), 0.0) / (1.0 - self._gamma)
        for number in sorted(episode.steps, reverse=True):
            slot = episode.steps[number]
            rest = float(self._steps.reward[slot]) + self._gamma * rest
            self._steps.return_to_go[slot] = rest
