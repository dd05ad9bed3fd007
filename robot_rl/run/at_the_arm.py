"""`robot-rl calibrate`: starts the graph of a real arm, or of its double, in the actor's place.

Three ways to move the arm. A person drives with their device (`operator=...`), or guides it by hand
(`operator=none`), or says yes to each motion that is proposed (`auto`). Nobody but a person sets a
real arm in motion; beside a double nobody needs to be asked (`unasked`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robot_rl.errors import ConfigError, RobotRLError, SafetyError, SetupError
from robot_rl.ros.graph import RealGraphConfig
from robot_rl.ros.supervise import Supervisor
from robot_rl.run.graph import graph_of, last_words, need_ros
from robot_rl.run.preflight import keep_findings, refuse_unready

if TYPE_CHECKING:
    from robot_rl.ros.calibrating import Ask, Station
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

FOLDER = "calibration"  # of a run folder
NOBODY: Ask = lambda _question: ""  # noqa: E731  # beside a double: everything is agreed to

Tell = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class How:
    """How a calibration goes about it.

    auto: motions are proposed, each for the person to agree to; unasked: they are all agreed to
    (doubles only). ask, tell: the person's terminal.
    """

    ask: Ask
    tell: Tell
    auto: bool = False
    unasked: bool = False

    @property
    def agree(self) -> Ask:
        """Asks, unless all is agreed to."""
        return NOBODY if self.unasked else self.ask


def check(experiment: Experiment, how: How) -> RealGraphConfig:
    """The graph's configuration. Raises `ConfigError`, `SafetyError` for what cannot be done."""
    ros = experiment.ros
    if experiment.runtime != "ros" or not isinstance(ros, RealGraphConfig):
        raise ConfigError(
            "there is no arm to calibrate",
            expected="a real arm's profile (docs/robots.md), or its double: double=true",
            got=f"ros={(experiment.config.get('ros') or {}).get('name')}, "
            f"runtime={experiment.runtime}",
            fix="robot=ur5e_fzi double=true; a simulated arm without a driver needs no calibration",
        )
    if experiment.moves_joints:
        raise ConfigError(
            "a calibration moves the TCP, and the actions of this run move the joints",
            expected="task.action=tcp",
            got="task.action=joint",
            fix="leave task.action=joint out: what is found does not depend on it",
        )
    if how.unasked and not ros.double:
        raise SafetyError(
            "a real arm moves only when a person says so",
            expected="--yes beside a double (double=true)",
            got="--yes with a real arm",
            fix="leave --yes out: each motion then waits for your Enter, with a hand at the stop",
        )
    return ros


@contextmanager
def at_the_arm(
    experiment: Experiment, how: How, camera: str = "", board: str = ""
) -> Iterator[Station]:
    """The graph of the experiment, running, with us in the actor's place.

    Args:
        camera: the one that is looked at. board: parameter `board` of a double.

    Raises:
        ConfigError, SafetyError: see `check`. SetupError: ROS 2 is missing, the driver is not
            ready, somebody else's graph runs in this domain, or no state or picture comes.
    """
    ros = check(experiment, how)
    need_ros()
    from robot_rl.ros.calibrating import Place, station

    keep_findings(refuse_unready(experiment), experiment.save())
    nodes = {kind: dict(values) for kind, values in ros.nodes.items()}
    if ros.double and board:
        nodes["sim"] = {**nodes.get("sim", {}), "board": board}
    graph = graph_of(experiment, with_actor=False, nodes=nodes)
    cameras = {}
    if camera:
        config = experiment.cameras[camera]
        cameras[camera] = replace(config, latency_s=0.0)
    place = Place(
        run_dir=experiment.run_dir,
        domain_id=ros.domain_id,
        namespace=ros.namespace,
        remaps={**experiment.driver.topics, **ros.remaps},
        task=experiment.task,
        robot=experiment.robot,
        driver=experiment.spoken_driver,
        cameras=cameras,
        arbiter=experiment.arbiter,
    )
    how.tell(
        f"starting {', '.join(spec.name for spec in graph)}; logs in {experiment.run_dir}/logs"
    )
    with Supervisor(graph, experiment.run_dir, ros.domain_id) as supervisor, station(place) as made:
        made.beats = lambda: _alive(supervisor, experiment)
        yield made


def _alive(supervisor: Supervisor, experiment: Experiment) -> None:
    for death in supervisor.poll():
        if death.fatal:
            raise RobotRLError(
                f"the {death.name} process cannot be kept alive",
                expected="a running process",
                got=last_words(death, experiment.run_dir),
                fix="robot-rl doctor with the same words looks at arm and machine",
            )
        log.warning("%s ended with code %d; it is started again", death.name, death.code)


def first_picture(arm: Station) -> tuple[int, int]:
    """Height and width of the whole pictures, once one is there. Raises `SetupError`."""
    arm.watch(3.0, lambda: arm.camera is not None and arm.camera.whole is not None)
    whole = None if arm.camera is None else arm.camera.whole
    if whole is None:
        raise SetupError(
            "the camera sends no picture",
            expected="a whole picture within 3 s",
            got="nothing",
            fix="robot-rl camera show with the same words says why",
        )
    return whole.rgb.shape[0], whole.rgb.shape[1]


def keep_json(experiment: Experiment, name: str, found: Mapping[str, Any]) -> None:
    """Keep what was found with the run."""
    folder = experiment.run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
