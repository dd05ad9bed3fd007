"""Started graphs that several cases share: starting one takes seconds.

    with Worlds(folder) as worlds:
        world = worlds.get("arm")      # starts it, and ends one that ran before

What runs are the real processes, beside the double of a real arm or the simulated one, each world
in a ROS domain and a folder of its own. Programs of this process listen and act through topics and
services only; `Stopwatch` writes down what the arm is told, and when that had arrived.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from robot_rl.bench.faults.case import NotHereError
from robot_rl.errors import ConfigError, SetupError, did_you_mean

if TYPE_CHECKING:
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros.rehearse import Person
    from robot_rl.ros.supervise import Supervisor
    from robot_rl.run.experiment import Experiment

READY_S = 60.0  # wall; for a graph that starts, on a busy machine


@dataclass(frozen=True, slots=True)
class ArmWorld:
    """A graph without an actor beside a double: whoever measures drives, as an actor would.

    person: answers what waits for a person, asks the gate, moves the arm (one thread).
    stopwatch: what arrives at the arm, and when.
    """

    experiment: Experiment
    supervisor: Supervisor
    person: Person
    stopwatch: Stopwatch

    def ready(self) -> None:
        """As a person before work: undo what stopped the arm, until nothing stands in the way."""
        self.person.wait_until(lambda: not self.person.why_not(), READY_S, "the graph is ready")


class Worlds:
    """Starts worlds when they are asked for; one at a time, because cores are few."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name, self._world = "", None
        self._stack = ExitStack()

    def get(self, name: str) -> Any:
        """The running world of this name.

        Raises:
            NotHereError: this machine lacks what it needs (ROS 2, a vendor's message types).
        """
        if name not in WORLDS:
            raise ConfigError(f"unknown world '{name}'", fix=did_you_mean(name, WORLDS))
        if self._world is None or name != self._name:
            self.close()
            folder = self._folder / name
            try:
                self._world = self._stack.enter_context(WORLDS[name](folder))
            except SetupError as error:
                raise NotHereError(error.summary, got=error.got, fix=error.fix) from error
            self._name = name
        return self._world

    def spoil(self) -> None:
        """The world that runs is no longer at rest: the next case gets a new one."""
        self.close()

    def close(self) -> None:
        """End the world that runs, if any."""
        self._world = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def arm_world(folder: Path) -> Iterator[ArmWorld]:
    """The double of a UR5e under a Cartesian controller; a gamepad's topic as the device."""
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros.graph import free_domain
    from robot_rl.ros.rehearse import Person
    from robot_rl.ros.runtime import visitor
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.graph import graph_of, need_ros

    need_ros()
    domain_id = free_domain()
    words = ["robot=ur5e_fzi", "double=true", "task=reach", "operator=joy", "ros.with_actor=false",
             f"ros.domain_id={domain_id}", f"run_dir={folder}/run"]  # fmt: skip
    experiment = Experiment.compose(words)
    experiment.save()
    graph = graph_of(experiment)
    remaps = next(spec.remaps for spec in graph if spec.name == "gate")
    with (
        supervised(graph, experiment) as supervisor,
        visitor("person", domain_id, remaps=remaps) as node,
        Stopwatch(domain_id, remaps) as stopwatch,
    ):
        world = ArmWorld(experiment, supervisor, Person(node), stopwatch)
        world.ready()
        yield world


@contextmanager
def supervised(graph: Any, experiment: Experiment) -> Iterator[Supervisor]:
    """The graph's processes; those that die are started again meanwhile."""
    from robot_rl.ros.supervise import Supervisor

    done = threading.Event()
    run_dir = experiment.run_dir.resolve()
    with Supervisor(graph, run_dir, experiment.ros.domain_id) as supervisor:

        def watch() -> None:
            while not done.wait(0.02):
                supervisor.poll()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield supervisor
        finally:
            done.set()
            watcher.join()


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll until `condition()` is truthy and return it. Raises `RobotRLError` when it is not."""
    from robot_rl.errors import RobotRLError

    give_up_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > give_up_s:
            raise RobotRLError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.005)
    return found


WORLDS: Mapping[str, Callable[[Path], AbstractContextManager[Any]]] = {"arm": arm_world}
"""Name -> the graph, as a context manager of a folder. Cases run world by world, in this order."""
