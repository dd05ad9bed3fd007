"""Started graphs that several cases share: starting one takes seconds.

    with Worlds(folder) as worlds:
        world = worlds.get("arm")      # starts it, and ends one that ran before

What runs are the real processes, beside the double of a real arm or the simulated one, each world
in a ROS domain and a folder of its own. Programs of this process listen and act through topics and
services only; `Stopwatch` writes down what the arm is told, and when that had arrived.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from robot_rl.bench.faults.case import NotHereError
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.errors import ConfigError, SetupError, did_you_mean

if TYPE_CHECKING:
    from robot_rl.bench.faults.stepped import Clock
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros.rehearse import Person
    from robot_rl.ros.supervise import Supervisor
    from robot_rl.run.experiment import Experiment

READY_S = 60.0  # wall; for a graph that starts, on a busy machine
RUNS_S = 120.0  # the same with an actor and a learner, which import torch
FRESH_S = 0.5  # wall; who asked the gate last drives, if that is not longer ago
LONG = 10_000_000  # steps and minutes that no case reaches
RUN = (
    *("robot=fr3_crisp", "double=true", "task=reach", "task.images=[wrist]"),
    *("task.tolerance_m=0.001", f"task.max_steps={LONG}", "operator=console", "train.demos=0"),
    "task.rotation_rad=0.005",  # a policy that knows nothing would twist the arm into itself
    *(f"train.max_env_steps={LONG}", f"train.min_env_steps={LONG}", f"train.max_minutes={LONG}"),
    *("train.video=false", f"learner.min_steps={LONG}"),
    # 30 pictures per second, as real cameras send them, and small ones, as no GPU draws them
    *("ros.nodes.sim.camera_hz=30", "cameras.wrist.width=176", "cameras.wrist.height=128"),
)
"""Words of a run that does nothing but go on."""


@dataclass(frozen=True, slots=True)
class ArmWorld:
    """A graph without an actor beside a double: whoever measures drives, as an actor would.

    person: answers what waits for a person, asks the gate, moves the arm (one thread).
    stopwatch: what arrives at the arm, and when. clock: of all nodes.
    """

    experiment: Experiment
    supervisor: Supervisor
    person: Person
    stopwatch: Stopwatch
    clock: Clock

    def ready(self) -> None:
        """As a person before work: undo what stopped the arm, until nothing stands in the way."""
        self.person.wait_until(lambda: not self.person.why_not(), READY_S, "the graph is ready")


@dataclass(frozen=True, slots=True)
class RunWorld:
    """A run in the middle of practice: actor, learner, operator at the page, beside a double.

    The policy is the learner's first, which knows nothing, and the target of the task is too small
    to hit: one endless episode. carer: the person who looks after the arm.
    """

    experiment: Experiment
    supervisor: Supervisor
    carer: Carer
    stopwatch: Stopwatch

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return self.experiment.run_dir.resolve()

    def poison(self, name: str) -> Path:
        """A file that makes the actor fail inside while it exists (`poisoned`)."""
        return self.run_dir.parent / name

    def drives(self, who: str) -> bool:
        """Whether the gate runs, and its newest request is of this driver."""
        from robot_rl.ros import topics, wire

        state = self.stopwatch.newest(topics.GATE_STATE)
        asked = self.stopwatch.newest(topics.GATE_REQUEST)
        if state is None or asked is None or time.monotonic() - asked[0] > FRESH_S:
            return False
        request = wire.decode_request(asked[1].data)
        running = wire.decode_report(state[1].data).mode == "run"
        return running and getattr(request, "driver", None) == who

    def until_policy(self) -> None:
        """Wait until the policy drives, with a person who looks after the arm."""
        self.carer.cares = True
        wait_for(lambda: self.drives("policy"), RUNS_S, "the policy drives")


class Carer:
    """A thread in which a person looks after the arm: resumes, acknowledges, prepares the scene.

    cares: False = the person looks away, and nothing goes on by itself.
    """

    def __init__(self, person: Person) -> None:
        self.person, self.cares = person, True
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self._done.is_set():
            if self.cares:
                self.person.turn(0.02)
            time.sleep(0.02)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def need_console() -> None:
    """Raise `NotHereError` where what serves the operator's page, or speaks to it, is missing."""
    for name in ("fastapi", "uvicorn", "websockets"):
        if importlib.util.find_spec(name) is None:
            raise NotHereError(f"{name} is not installed", fix="pip install 'robot-rl[console]'")


class Worlds:
    """Starts worlds when they are asked for; one at a time, because cores are few."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name, self._world, self._count = "", None, 0
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
            self._count += 1
            folder = self._folder / f"{name}-{self._count}"
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
    from robot_rl.bench.faults.stepped import Clock
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
    clock = Clock(folder / "clock")
    graph = clock.on(graph_of(experiment))
    remaps = next(spec.remaps for spec in graph if spec.name == "gate")
    with (
        supervised(graph, experiment) as supervisor,
        visitor("person", domain_id, remaps=remaps) as node,
        Stopwatch(domain_id, remaps) as stopwatch,
    ):
        person = Person(node, now_s=clock.now_s)
        world = ArmWorld(experiment, supervisor, person, stopwatch, clock)
        world.ready()
        yield world


@contextmanager
def run_world(folder: Path) -> Iterator[RunWorld]:
    """The double of a Franka under CRISP's controller with a camera, and everything of a run but
    the page's server, which cases bring."""
    from robot_rl.bench.faults import poisoned
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.console.address import HOST
    from robot_rl.ros.graph import free_domain
    from robot_rl.ros.rehearse import Person
    from robot_rl.ros.runtime import visitor
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.graph import need_ros, system_of
    from robot_rl.system.ports import probe

    need_ros()
    domain_id = free_domain()
    own = [f"link.port={probe(HOST, 0)}", f"ros.domain_id={domain_id}", f"run_dir={folder}/run"]
    experiment = Experiment.compose([*RUN, *own])
    experiment.save()
    graph = poisoned.on(system_of(experiment, console=False), folder)
    remaps = next(spec.remaps for spec in graph if spec.name == "gate")
    with (
        supervised(graph, experiment) as supervisor,
        visitor("person", domain_id, remaps=remaps) as node,
        Stopwatch(domain_id, remaps) as stopwatch,
        Carer(Person(node)) as carer,
    ):
        world = RunWorld(experiment, supervisor, carer, stopwatch)
        world.until_policy()
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


WORLDS: Mapping[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "arm": arm_world,
    "run": run_world,
}
"""Name -> the graph, as a context manager of a folder. Cases run world by world, in this order."""
