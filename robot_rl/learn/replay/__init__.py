"""Replay: a sampling view over the rows of the store.

storage (where rows lie) -> rewards (what a step is worth) -> replay (what may be drawn, and how) ->
views (what an algorithm asks for and gets); summary (what the diagnostics read).
"""

from robot_rl.learn.replay.replay import Replay
from robot_rl.learn.replay.summary import EpisodeCounts, ReplaySummary
from robot_rl.learn.replay.views import Batch, View

__all__ = ["Batch", "EpisodeCounts", "Replay", "ReplaySummary", "View"]
