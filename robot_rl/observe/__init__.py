"""Pairing by stamp and staleness: sensor readings -> Observation."""

from robot_rl.observe.freshness import Freshness, FreshnessReport
from robot_rl.observe.pairing import Stamped, Track, newest_consistent

__all__ = ["Freshness", "FreshnessReport", "Stamped", "Track", "newest_consistent"]
