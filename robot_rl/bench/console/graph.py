"""The whole graph for the console's benchmarks, and a gate with a stopwatch.

What runs is what `robot-rl train runtime=ros operator=console` starts: simulated arm, gate,
watchdog, operator, view, actor with its control loop, learner. Two things differ. The learner
learns nothing: it publishes its untrained policy and idles. And the gate's process writes down when
it took what into account (`main`), on the machine's monotonic clock, which a browser counts too.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import METRICS
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError
from robot_rl.run.experiment import Experiment
from robot_rl.system.files import Tail
from robot_rl.system.ports import probe

if TYPE_CHECKING:
    from robot_rl.ros.reader import StateReader
    from robot_rl.ros.runtime import Shell
    from robot_rl.ros.supervise import Supervisor
    from robot_rl.safety.limits import Limits
    from robot_rl.types import RobotState

TIMES = "gate_times.jsonl"  # what the gate with a stopwatch leaves in the run folder
LONG = 10_000_000  # steps and minutes that no benchmark reaches
OVERRIDES = (
    "experiment=reach",  # nothing to bump into
    "task.tolerance_m=0.001",  # the untrained policy hardly ever ends an episode by reaching
    f"task.max_steps={LONG}",
    "runtime=ros",
    "operator=console",
    "ros.real_time_factor=1.0",
    "train.demos=0",
    f"train.max_env_steps={LONG}",
    f"train.min_env_steps={LONG}",
    f"train.max_minutes={LONG}",
    "train.video=false",
    f"learner.min_steps={LONG}",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the gate's stopwatch.

    at_s: `time.monotonic` when the gate had taken it into account; what: "driving" (value True or
    False: the person's device as the gate knows it), "command" (value: who drives, for each command
    judged), "mode" (value: the gate's mode after its watchdogs ran, with its reason); inbox_s: when
    the message had reached the gate's process (driving only).
    """

    at_s: float
    what: str
    value: Any
    reason: str = ""
    sent_s: float = 0.0
    inbox_s: float = 0.0


class Graph:
    """The running graph, and what its gate has written down so far."""

    def __init__(self, supervisor: Supervisor, run_dir: Path, control_hz: float) -> None:
        self.run_dir, self.control_hz = run_dir, control_hz
        self._supervisor, self._tail = supervisor, Tail(run_dir / TIMES)
        self._moments: list[Moment] = []

    def moments(self) -> list[Moment]:
        """All moments so far. Raises `RobotRLError` when a process has died."""
        from robot_rl.run.graph import last_words

        self._moments += [Moment(**line) for line in self._tail.lines()]
        for death in self._supervisor.poll():
            raise RobotRLError(
                f"the {death.name} process died",
                expected="all processes of the graph live while they are measured",
                got=last_words(death, self.run_dir),
                fix="run robot-rl doctor",
            )
        return self._moments

    def ends_s(self) -> list[float]:
        """When episodes ended by themselves so far, `time.monotonic`: not because the arm held."""
        since_s = time.time() - time.monotonic()
        lines = Tail(self.run_dir / METRICS).lines()
        return [x["time_s"] - since_s for x in lines if x.get("episode/aborted") == 0.0]

    def newest(self, what: str) -> Any:
        """The newest value of a kind, None before the first."""
        return next((m.value for m in reversed(self.moments()) if m.what == what), None)

    def words(self) -> str:
        """What the gate says now, for a person to read."""
        newest = {m.what: f"{m.value} {m.reason}".strip() for m in self.moments()}
        return ", ".join(f"{what}: {said}" for what, said in newest.items()) or "no gate yet"


@contextmanager
def graph() -> Iterator[Graph]:
    """Run the graph of a run in a temporary folder, without its console.

    Raises:
        SetupError: rclpy is missing.
    """
    from robot_rl.ros.graph import free_domain
    from robot_rl.ros.supervise import Supervisor
    from robot_rl.run.graph import graph_of, learner_spec, need_ros

    need_ros()
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name:
        # a port and a domain of its own: a run that goes on beside is neither heard nor disturbed
        own = (f"link.port={probe(HOST, 0)}", f"ros.domain_id={free_domain()}")
        run_dir = Experiment.compose([*OVERRIDES, *own, f"run_dir={name}/run"]).save().resolve()
        experiment = Experiment.load(run_dir)
        nodes = [
            replace(spec, module=__name__) if spec.name == "gate" else spec
            for spec in graph_of(experiment)
        ]
        specs = (learner_spec(run_dir), *nodes)
        with Supervisor(specs, run_dir, experiment.ros.domain_id) as supervisor:
            yield Graph(supervisor, run_dir, experiment.task.spec.control_hz)


# --- the gate with a stopwatch ------------------------------------------------------------------


def main(args: Sequence[str] | None = None) -> int:
    """The gate's own process and code, which also writes down when it took what into account."""
    from robot_rl.ros import gate_node
    from robot_rl.ros.endpoints import Newest
    from robot_rl.run import nodes
    from robot_rl.safety.states import Engagement

    class Stamped(Newest):
        """Remembers when the newest message that changes who drives was sent, and had arrived."""

        sent_s, inbox_s, _driving = 0.0, 0.0, False

        def _take(self) -> tuple[Any, Any] | None:
            taken = super()._take()
            if taken is None:
                return None
            message, info = taken
            buttons = getattr(message, "buttons", None)  # every reader of the gate is one of these
            driving = self._driving if buttons is None else bool(buttons and buttons[0])
            if driving != self._driving:
                self._driving = driving
                wall_s = time.time() - time.monotonic()  # the middleware's clock
                self.sent_s = info["source_timestamp"] * 1e-9 - wall_s
                self.inbox_s = info["received_timestamp"] * 1e-9 - wall_s
            return taken

    class Timed(gate_node.GateNode):
        """The gate, which also writes its moments to a file."""

        _joy: Stamped

        def __init__(self, shell: Shell, limits: Limits, reader: StateReader) -> None:
            super().__init__(shell, limits, reader)
            self._notes = (Path(self.params["run_dir"]) / TIMES).open("a", buffering=1)
            self._noted: dict[str, Any] = {}

        def _note(self, what: str, value: Any, reason: str = "") -> None:
            if what == "command" or self._noted.get(what) != (value, reason):
                self._noted[what] = (value, reason)
                way = (self._joy.sent_s, self._joy.inbox_s)
                line = Moment(time.monotonic(), what, value, reason, *way)
                self._notes.write(json.dumps(asdict(line)) + "\n")

        def _read_joy(self, now_s: float) -> None:
            super()._read_joy(now_s)
            driving = self.gate.engagement is Engagement.DRIVING
            self._note("driving", driving)

        def _handle(self, text: str, state: RobotState | None, now_s: float) -> None:
            super()._handle(text, state, now_s)
            command = json.loads(text).get("command")
            if command is not None:
                self._note("command", command["driver"])

        def turn(self) -> None:
            super().turn()
            self._note("mode", self.gate.mode.value, self.gate.reason)

    gate_node.Newest, gate_node.GateNode = Stamped, Timed
    return nodes.gate(args)


if __name__ == "__main__":
    raise SystemExit(main())
