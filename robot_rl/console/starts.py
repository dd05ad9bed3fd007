"""Where episodes started, for the map of the review page: from the first frame of each, once.

What tells where things were is, in this order: the recorded scene of a simulated run (tool and
objects in base), and the parts of the state that are neither speeds nor forces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.console.signals import line_names, part_names, plain_unit, told
from robot_rl.spec import Spec
from robot_rl.types import EpisodeId, Frame, RobotState

MOST_STARTS = 2000  # the newest ones
MOST_AXES = 24  # those in which the starts differ most
MOVING = ("m/s", "rad/s", "N", "Nm")  # units of what says nothing about a place
LENGTH = "mm"
SCENE = "_in_base"  # end of the names of what a scene tells
Place = dict[str, float]  # name of an axis -> value


class Starts:
    """The first frames that have been read, as places on axes."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._units: dict[str, str] = {}
        self._places: dict[EpisodeId, Place] = {}

    def __contains__(self, id_: EpisodeId) -> bool:
        return id_ in self._places

    def add(self, id_: EpisodeId, first: Frame | None, scene: RobotState | None) -> None:
        """Keep where an episode started; an episode without a first frame has no place."""
        place: Place = {}
        if scene is not None:
            poses = {"tcp": scene.tcp_in_base, **scene.objects}
            for name, pose in poses.items():
                self._put(place, name + SCENE, "mm", pose.position_m * 1000.0)
        state = None if first is None else first.observation.get("state")
        if state is not None:
            for name, part, recorded in part_names(self._spec):
                factor, unit = plain_unit(recorded)
                tells = unit.partition(" ")[0] not in MOVING and not unit.startswith("tanh")
                if tells and part.stop <= len(state):
                    self._put(place, name, unit, state[part] * factor)
        self._places[id_] = place

    def told(self, ids: Sequence[EpisodeId]) -> dict[str, Any]:
        """Axes and places of these episodes.

        axes: name and unit of each, the two that the page shows first first; starts: run, actor,
        episode and `at`, one value per axis, null where it is not known.
        """
        placed = [(id_, self._places[id_]) for id_ in ids if self._places.get(id_)]
        axes = self._axes([place for _, place in placed])
        return {
            "axes": [{"name": name, "unit": self._units[name]} for name in axes],
            "starts": [
                {
                    "run": id_.run,
                    "actor": id_.actor,
                    "episode": id_.episode,
                    "at": [told(place.get(name, np.nan)) for name in axes],
                }
                for id_, place in placed
            ],
        }

    def _put(self, place: Place, name: str, unit: str, values: NDArray[np.floating]) -> None:
        for entry, value in zip(line_names(len(values)), values, strict=True):
            axis = f"{entry} of {name}" if entry else name
            self._units[axis] = unit
            place[axis] = float(value)

    def _axes(self, places: Sequence[Place]) -> list[str]:
        """Names of the axes in which the places differ, the widest spread first; but those that
        most episodes have come before others, then those of a scene, then lengths."""
        spreads: dict[str, tuple[bool, bool, bool, float]] = {}
        for name, unit in self._units.items():
            values = [place[name] for place in places if name in place]
            spread = float(np.std(values)) if values else 0.0
            if spread > 0.0:
                is_length = unit.partition(" ")[0] == LENGTH
                is_usual = len(values) * 2 > len(places)
                spreads[name] = (is_usual, name.endswith(SCENE), is_length, spread)
        order = sorted(spreads, key=lambda name: spreads[name], reverse=True)
        return order[:MOST_AXES]
