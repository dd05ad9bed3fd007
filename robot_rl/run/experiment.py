"""One experiment: everything a run needs to know, composed from YAML and overrides, saved with it.

Groups are resolved on first use, because a process should import only what it needs: the gate reads
`limits` and never imports torch; the learner reads `algo` and never imports ROS.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config import provenance
from robot_rl.config.compose import compose
from robot_rl.config.registry import build, resolve
from robot_rl.config.run_folder import (
    ACTOR_STORE,
    LEARNER_STORE,
    RUN,
    STORE,
    config_hash,
    read_facts,
    run_name,
)
from robot_rl.config.yaml_file import read_yaml, write_yaml
from robot_rl.control.session import ACTOR, TrainConfig
from robot_rl.control.takeover import GENTLE, ArbiterConfig
from robot_rl.errors import ConfigError, SetupError, did_you_mean
from robot_rl.link.roster import Roster
from robot_rl.ports import FitsRobot, Mirrored
from robot_rl.robots.driver import ArmDriver
from robot_rl.robots.ik import InverseKinematics
from robot_rl.run import arms as several
from robot_rl.run import engines
from robot_rl.run.budget import take_budget
from robot_rl.spec import diff, listed
from robot_rl.system.files import replace_json
from robot_rl.system.made_here import mark_of
from robot_rl.tasks.common import OVERVIEW, SimTask
from robot_rl.tasks.described import DescribedTask
from robot_rl.tasks.gym import GymTask

if TYPE_CHECKING:
    from robot_rl.learn.algos.base import AlgorithmConfig
    from robot_rl.learn.learner import LearnerConfig
    from robot_rl.observe.cameras import CameraConfig, Device
    from robot_rl.policy.base.spec import BaseConfig
    from robot_rl.ports import Task
    from robot_rl.reward.config import RewardConfig
    from robot_rl.robots import Robot
    from robot_rl.ros.graph import RealGraphConfig, SimGraphConfig
    from robot_rl.safety.limits import Limits
    from robot_rl.spec import Spec

RUNTIMES = ("lockstep", "ros")
SEVERAL = ("actors", "arm", "pace_hz")  # keys of several arms; left out where there is one
ARM_SEEDS = 100_000  # between the draws of two arms: seeds of a study stay below
ALONE = ("none", "scripted", "")
GYM_OPERATORS = ("none", "scripted", "environment", "console", "gamepad", "spacemouse")
BOX = "safety.obstacles.wall={centre_in_base_m: [0, 1, 0.5], size_m: [2, 0.1, 1]}"

GROUPS = (
    "robot",
    "driver",
    "task",
    "cameras",
    "safety",
    "operator",
    "arbiter",
    "reward",
    "base",
    "algo",
    "learner",
    "link",
    "ros",
    "train",
)
"""Top-level sections of a config, in the order in which they are shown."""


@dataclass(frozen=True)
class Experiment:
    """A checked experiment. `config` is the composed dict; sections are built on first access.

    Attributes:
        name: of the experiment file, used for the run folder.
        runtime: "lockstep" (one process, no ROS, no wall clock) or "ros" (real time).
        run_dir: where everything of this run is written.
    """

    name: str
    seed: int
    runtime: str
    run_dir: Path
    config: Mapping[str, Any]

    @classmethod
    def compose(cls, overrides: Sequence[str] = (), extra_dir: Path | None = None) -> Experiment:
        """Compose YAML files and command-line overrides into an experiment.

        Raises:
            ConfigError: see `robot_rl.config.compose.compose`, `from_dict` and `raised`.
        """
        from robot_rl.run.raised import refuse_raised

        experiment = cls.from_dict(compose(overrides, extra_dir))
        refuse_raised(experiment.limits_of_arms, overrides)
        return experiment

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Experiment:
        """Build from a composed dict. Section contents are checked by `check`, or on first use.

        Raises:
            ConfigError: unknown section, or a wrong seed, runtime or run_dir.
        """
        known = [f.name for f in dataclasses.fields(RunConfig)] + list(GROUPS)
        for key in config.keys() - set(known):
            raise ConfigError(
                f"unknown config key '{key}'",
                expected="a section or a top-level key",
                got=f"{key}={config[key]!r}",
                fix=did_you_mean(key, known),
            )
        top = build(RunConfig, {k: v for k, v in config.items() if k not in GROUPS})
        run_dir = Path(top.run_dir) if top.run_dir else _new_run_dir(top.name, top.seed)
        plain = {k: v for k, v in config.items() if k != "run_dir"}
        if top.actors is not None:
            plain["actors"] = several.sections(top.actors)
        return cls(top.name, top.seed, top.runtime, run_dir, plain)

    @property
    def sim(self) -> str:
        """What moves the simulated arm (`robot_rl.run.engines`)."""
        return self.config.get("sim", engines.MUJOCO)

    @property
    def actors(self) -> tuple[str, ...]:
        """Names of the run's arms (`actors`); empty = one arm without a name."""
        return tuple(self.config.get("actors") or ())

    @property
    def arm(self) -> str:
        """Which of several arms this is; "" = the run itself, or its only arm."""
        return self.config.get("arm", "")

    @cached_property
    def arms(self) -> tuple[Experiment, ...]:
        """The experiment of each arm's own run folder; the run itself, if it has only one."""
        if self.arm or not self.actors:
            return (self,)
        folder = self.run_dir
        return tuple(
            Experiment.from_dict(
                several.of_arm(self.config, name)
                | {"run_dir": str(several.folder_of(folder, name))}
            )
            for name in self.actors
        )

    @property
    def home(self) -> Path:
        """Folder of the run, to which this arm's folder belongs."""
        return self.run_dir.parents[1] if self.arm else self.run_dir

    @property
    def run_name(self) -> str:
        """Name of the run in its rows. Raises `ConfigError` (`run_folder.run_name`)."""
        return run_name(self.home)

    @property
    def actor(self) -> str:
        """Identity of this arm's rows in the stores."""
        return f"actor-{self.arm}" if self.arm else ACTOR

    @property
    def key_names(self) -> tuple[str, ...]:
        """Key pairs that this run needs on one machine."""
        return ("learner", *([f"actor-{name}" for name in self.actors] or ["actor"]))

    @property
    def key_name(self) -> str:
        """The actor's key pair."""
        return f"actor-{self.arm}" if self.arm else self.link.actor_key

    @property
    def roster(self) -> Roster:
        """Whose rows each key may bring to the learner; the first arm brings the data."""
        keys = [(arm.key_name, arm.actor) for arm in self.arms]
        return Roster(actors=dict(keys), run=self.run_name, data_by=keys[0][0])

    @property
    def draws_seed(self) -> int:
        """Of starts and exploration: arms that learn together do not all do the same."""
        return self.seed + ARM_SEEDS * self.actors.index(self.arm) if self.arm else self.seed

    @property
    def pace_hz(self) -> float:
        """Control ticks per second of wall time of simulated actors; 0 = as fast as they go."""
        return self.config.get("pace_hz", 0.0)

    @cached_property
    def own_train(self) -> TrainConfig:
        """`train` as this arm does it: its share of the demonstrations; one arm brings the data."""
        if not self.arm:
            return self.train
        index, count = self.actors.index(self.arm), len(self.actors)
        return dataclasses.replace(
            self.train,
            demos=several.share(self.train.demos, index, count),
            dataset=self.train.dataset if index == 0 else "",
        )

    @cached_property
    def robot(self) -> Robot:
        """The arm (group `robot`); in runs that are older than this group, an FR3."""
        return resolve("robot", self.config.get("robot") or {"name": "fr3"})

    @cached_property
    def driver(self) -> ArmDriver:
        """How the arm's own driver speaks (section `driver`): of a profile, e.g. robot=ur5e_fzi."""
        return build(ArmDriver, self.config.get("driver") or {}, "driver")

    @property
    def spoken_driver(self) -> ArmDriver:
        """The driver beside which the graph runs; the simulated arm speaks as our own."""
        return ArmDriver() if self.is_simulated else self.driver

    @cached_property
    def task(self) -> Task:
        """What is to be learned (group `task`), with this robot, as it is in this run."""
        task = self._asked_task
        return task.of_run(self.draws_seed) if isinstance(task, SimTask) else task

    @cached_property
    def _asked_task(self) -> Task:
        """The task as the configuration has it: nothing of it is drawn yet."""
        task = self._section("task")
        return task.with_robot(self.robot) if isinstance(task, FitsRobot) else task

    @cached_property
    def cameras(self) -> dict[str, CameraConfig]:
        """Where the pictures of each of the task's cameras come from (group `camera`).

        A camera that the section leaves out is a topic. A task without pictures has no cameras,
        whatever those of the robot are.

        Raises:
            ConfigError: the section names a camera that a task with pictures does not have.
        """
        known = self.task.spec.cameras
        for name in _mapping(self.config.get("cameras"), "cameras", "cameras.wrist.name=uvc"):
            if known and name not in known:
                raise ConfigError(
                    f"cameras.{name}: the task has no such camera",
                    expected="a camera of the task (task.images)",
                    got=name,
                    fix=did_you_mean(name, known),
                )
        return {n: resolve("camera", self._camera(n), f"cameras.{n}") for n in known}

    def _camera(self, name: str) -> Mapping[str, Any]:
        where, given = f"cameras.{name}", (self.config.get("cameras") or {}).get(name)
        return {"name": "topic", **_mapping(given, where, f"{where}.name={given}")}

    @property
    def devices(self) -> dict[str, Device]:
        """Those of the cameras that a camera node of ours reads."""
        from robot_rl.observe.cameras import Device

        return {name: c for name, c in self.cameras.items() if isinstance(c, Device)}

    @property
    def graph_cameras(self) -> dict[str, CameraConfig]:
        """`cameras` as they are in this run's graph: a simulated arm's send what the network sees.

        A double (`ros.double`) sends whole pictures, as the configured cameras would.
        """
        from robot_rl.observe.cameras import TopicCameraConfig

        return (
            dict.fromkeys(self.cameras, TopicCameraConfig()) if self.is_simulated else self.cameras
        )

    @cached_property
    def limits(self) -> Limits:
        """What the gate allows: `robot_limits` in the task's workspace. Raises the same."""
        limits = self.robot_limits.narrow_to(self.task)
        return limits.of_joints(self.robot) if self.moves_joints else limits

    @property
    def moves_joints(self) -> bool:
        """Whether the actions move the joints, not the TCP."""
        return isinstance(self.task, SimTask) and self.task.moves_joints

    @cached_property
    def robot_limits(self) -> Limits:
        """The robot's limits (section `safety`), whatever the task is.

        Raises:
            ConfigError: the limits are another robot's.
        """
        from robot_rl.robots.described import Described
        from robot_rl.safety.body import introduce
        from robot_rl.safety.limits import Limits

        given = dict(self.config.get("safety") or {})
        name = given.pop("name", self.robot.name)
        if "robot" in self.config and name != self.robot.name:
            raise ConfigError(
                "the limits are another robot's",
                expected=f"safety.name={self.robot.name}",
                got=f"safety.name={name}",
                fix=f"robot={name} chooses the robot with its limits",
            )
        if isinstance(self.robot, Described):
            introduce(self.robot)
        derived = dataclasses.asdict(Limits.of(self.robot))
        boxes = _mapping(given.get("obstacles"), "safety.obstacles", BOX)
        given["obstacles"] = derived["obstacles"] | dict(boxes)
        return build(Limits, derived | given, "safety")

    @property
    def limits_of_arms(self) -> list[tuple[Robot, Limits]]:
        """The robot of each arm, and its limits. Raises like `robot_limits`."""
        return [(arm.robot, arm.robot_limits) for arm in self.arms]

    @cached_property
    def operator(self) -> Any:
        """Who helps (group `operator`); `operate.devices.make_operator` builds the device."""
        return self._section("operator")

    @cached_property
    def arbiter(self) -> ArbiterConfig:
        """How a person takes over and hands back; gently, unless a script does."""
        operator = self.config.get("operator") or {}
        alone = operator.get("name") in ("scripted", "none", None) or operator.get("with_script")
        gentle = {} if alone else GENTLE
        if isinstance(self.task, GymTask):  # zero is the middle of its Box, not standing still
            gentle = {"ramp_s": 0.0, "release_ramp_s": 0.0}
        return build(ArbiterConfig, gentle | (self.config.get("arbiter") or {}), "arbiter")

    @cached_property
    def reward(self) -> RewardConfig:
        """Who says what an episode is worth (group `reward`); in older runs, the task."""
        from robot_rl.reward.config import PredicateRewardConfig

        return self._section("reward") if self.config.get("reward") else PredicateRewardConfig()

    @cached_property
    def base(self) -> BaseConfig | None:
        """The pretrained policy to build on (group `base`), which imports torch; or None."""
        given = dict(self.config.get("base") or {})
        if given.pop("name", "none") != "none":
            return self._section("base")
        if given:
            raise ConfigError(
                "there is no base that these keys could belong to",
                expected="base=flow, act, served, lerobot, openpi, groot or openvla with them",
                got=" ".join(f"base.{key}={value}" for key, value in given.items()),
                fix="choose the base; a policy that is learned itself has keys of its own: algo...",
            )
        return None

    @cached_property
    def spec(self) -> Spec:
        """The spec of this run's rows: the task's, and what the base adds to each frame."""
        spec = self.task.spec
        if self.planner is None:
            return spec
        from robot_rl.learn.algos.base import ChoosesNoise

        noise = self.algo.noise_size(spec) if isinstance(self.algo, ChoosesNoise) else 0
        return spec.with_base(self.planner.ahead, noise)

    @property
    def mirror_signs(self) -> Mapping[str, Sequence[int]] | None:
        """Signs of each part of the state, left <-> right; None from a task that says none."""
        return self.task.mirror if isinstance(self.task, Mirrored) else None

    @cached_property
    def planner(self) -> BaseConfig | None:
        """The base whose plan is recorded with each frame; None if the algorithm runs it itself."""
        if self.base is None:
            return None
        from robot_rl.learn.algos.base import RunsBase

        return None if isinstance(self.algo, RunsBase) else self.base

    @cached_property
    def algo(self) -> Any:
        """Config of the learning algorithm (group `algo`). Imports torch."""
        return self._section("algo")

    @cached_property
    def algorithm(self) -> AlgorithmConfig:
        """`algo` ready to make learner and actor: with value bounds, and a base that it runs.

        Raises:
            ConfigError: the algorithm needs a base, and there is none that it can run.
        """
        from robot_rl.learn.algos.base import BoundsValue, RunsBase

        algo, given = self.algo, self.algo
        if isinstance(given, BoundsValue) and given.value_range is not None:
            bounds = self.reward.value_range(given.value_range, given.gamma)
            algo = dataclasses.replace(algo, value_range=bounds)
        if isinstance(given, RunsBase):
            return algo.on(self.base, self.task.spec, self.seed)
        return algo

    @cached_property
    def link(self) -> Any:
        """Config of the actor-learner link (group `link`)."""
        return self._section("link")

    @cached_property
    def ros(self) -> SimGraphConfig | RealGraphConfig:
        """How the ROS 2 graph runs (group `ros`). Needs no ROS to be read."""
        return self._section("ros")

    @property
    def is_simulated(self) -> bool:
        """Whether the ROS 2 graph brings a simulated arm."""
        return (self.config.get("ros") or {}).get("name") == "sim"

    @property
    def is_real(self) -> bool:
        """Whether the run is of a real arm (or of a double in its place)."""
        return self.runtime == "ros" and self._has_real_graph

    @property
    def _has_real_graph(self) -> bool:
        return (self.config.get("ros") or {}).get("name") == "real"

    @property
    def has_person(self) -> bool:
        """Whether a person may drive, for whom time must pass as on the wall."""
        return (self.config.get("operator") or {}).get("name", "") not in ALONE

    def refuse_script_on_a_real_arm(self) -> None:
        """Raise `ConfigError` when a script would drive a real arm: a script sees only the task."""
        from robot_rl.operate.scripted import ScriptedOperatorConfig

        shared = bool(getattr(self.operator, "with_script", False))
        scripted = shared or isinstance(self.operator, ScriptedOperatorConfig)
        if not (scripted and self._has_real_graph):
            return
        raise ConfigError(
            "a script may not drive a real arm",
            expected="a person: operator=gamepad, spacemouse, joy, twist or console; or none",
            got="operator.with_script=true" if shared else "a scripted operator",
            fix="choose the device that the person holds, e.g. operator=gamepad (docs/devices.md)",
        )

    def mirror(self, view: str = OVERVIEW, height: int = 480, width: int = 640) -> Any:
        """`robot_rl_sim.mirror.Mirror` of the task: draws what a `RobotState` says.

        Raises:
            SetupError: no OpenGL on this machine.
        """
        from robot_rl_sim.mirror import Mirror

        task: Any = self.task
        return Mirror(task, self.robot, view, height, width, cameras=self.cameras)

    def inverse_kinematics(self) -> InverseKinematics:
        """From TCP targets to joint targets, for an arm whose driver takes no others.

        Raises:
            ConfigError: its time-out is shorter than the gate's, which would stop and go.
            SetupError: mink, or MuJoCo, is not installed.
        """
        joints, gate_s = self.driver.joints, self.limits.command_timeout_s
        if joints.is_used and joints.timeout_s <= gate_s:
            raise ConfigError(
                "driver.joints.timeout_s is shorter than the gate's own time-out",
                expected=f"more than {gate_s:.3g} s ({self.limits.command_timeout_periods:g} "
                "control periods)",
                got=f"{joints.timeout_s:g} s",
                fix=f"driver.joints.timeout_s={gate_s + 0.05:.2g}",
            )
        try:
            from robot_rl_sim.inverse_kinematics import MinkKinematics
        except ImportError as error:
            raise SetupError(
                "inverse kinematics needs mink and MuJoCo",
                expected="packages mink, daqp and mujoco",
                got=str(error),
                fix="pip install 'robot-rl[ik]'",
            ) from error
        return MinkKinematics(self.robot, self.limits, joints.speed)

    @cached_property
    def learner(self) -> LearnerConfig:
        """Update budget, batch, checkpoints. Imports torch."""
        from robot_rl.learn.learner import LearnerConfig

        return build(LearnerConfig, self.config.get("learner") or {}, "learner")

    @cached_property
    def train(self) -> TrainConfig:
        """When a session moves on and when it ends."""
        return build(TrainConfig, self.config.get("train") or {}, "train")

    def section(self, name: str) -> Any:
        """Section `name` of `GROUPS`, built.

        Raises:
            ConfigError: an unknown key, or a wrong type or value in it.
            SetupError: the section needs an extra that is not installed.
        """
        try:
            return getattr(self, "limits" if name == "safety" else name)
        except ModuleNotFoundError as error:
            raise SetupError(
                f"the {name} section needs a package that is not installed",
                expected=f"import {error.name} works",
                got=str(error),
                fix="run make setup, or: pip install 'robot-rl[sim,learn]'",
            ) from error

    def check(self) -> None:
        """Build every section, so that a typo ends here and not after an hour of training.

        The policy's network is made, too: this shows whether head, base and observation fit.

        Raises:
            ConfigError, SpecError, CheckpointError: what does not fit, or is not there.
            SafetyError: an obstacle stands where the arm is at home.
        """
        from robot_rl.safety import collision

        if isinstance(self.task, DescribedTask):  # before `limits` intersects the boxes
            _check_described(self, self.task)
        for name in GROUPS:
            self.section(name)
        if self.runtime == "ros":
            self.refuse_script_on_a_real_arm()
        if self.link.paired and self.runtime != "ros":
            raise ConfigError(
                "link=remote puts the learner on another machine, and lockstep has one process",
                expected="runtime=ros",
                got=f"runtime={self.runtime} link=remote",
                fix="add runtime=ros, or leave link=remote out",
            )
        if isinstance(self.task, GymTask):
            _check_gym(self)
        if self.moves_joints:
            _check_joints(self)
        if self.sim != engines.MUJOCO and not isinstance(self.task, SimTask):
            raise engines.one_simulator(self.sim, type(self.task).__name__)
        _check_several(self)
        self.algorithm.make_actor(self.spec)
        collision.check_home(self.robot_limits, self.robot.home_rad)

    def resolved(self) -> dict[str, Any]:
        """Every value that is in force, defaults included: a plain nested dict, fit for YAML."""
        top = {"name": self.name, "seed": self.seed, "runtime": self.runtime}
        top |= {key: _plain(self.config[key]) for key in SEVERAL if self.config.get(key)}
        if self.sim != engines.MUJOCO:  # runs that are older than this key are MuJoCo's
            top["sim"] = self.sim
        return top | {name: self.plain_section(name) for name in GROUPS}

    def plain_section(self, name: str) -> dict[str, Any]:
        """Section `name` as a plain dict with every default filled in. Raises like `section`."""
        built: Any = self._asked_task if name == "task" else self.section(name)
        if name == "cameras":
            return {n: {"name": self._camera(n)["name"], **_plain(c)} for n, c in built.items()}
        given = self.config.get(name) or {}
        values = _plain(built) if dataclasses.is_dataclass(built) else dict(given)
        own = {k: v for k, v in values.items() if k != "name"}
        return ({"name": given["name"]} if "name" in given else {}) | own

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 over `resolved()`."""
        return config_hash(self.resolved())

    def save(self, run_dir: Path | None = None) -> Path:
        """Write config.yaml, limits.yaml and run.json (hash, git, versions); return the folder.

        A run that is there already takes another budget (`run.budget`), and nothing else.

        Raises:
            ConfigError: the folder already belongs to another experiment, or to one that nobody
                knows: it has a store, and no run.json.
        """
        return self.keep(self.resolved(), run_dir)

    def keep(
        self, resolved: Mapping[str, Any], run_dir: Path | None = None, *, has_rows: bool = False
    ) -> Path:
        """`save` for values in force that were resolved elsewhere. Raises the same.

        has_rows: a store without run.json is no incomplete copy: an import writes its rows first.
        """
        folder = run_dir or self.run_dir
        digest = config_hash(resolved)
        before = saved_hash(folder)
        if not before and not has_rows:
            _refuse_incomplete(folder)
        if before not in ("", digest) and not take_budget(folder, resolved):
            lines = diff(read_yaml(folder / "config.yaml"), json.loads(json.dumps(resolved)))
            raise ConfigError(
                f"{folder} belongs to another experiment",
                expected="the run's configuration, value by value",
                got="run -> now: " + listed(lines),
                fix="choose another folder (run_dir=..., or --out where a policy is deployed or "
                "compared), or repeat the command of that run",
            )
        if before:
            self._save_arms(folder)
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        write_yaml(folder / "config.yaml", resolved)
        write_yaml(folder / "limits.yaml", resolved["safety"])
        record = {"config_hash": digest, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        record["made_here"] = mark_of(digest)
        record["run"] = (folder.parents[1] if self.arm else folder).resolve().name
        record |= provenance.collect()
        replace_json(folder / RUN, record)
        self._save_arms(folder)
        return folder

    def _save_arms(self, folder: Path) -> None:
        if self.actors and not self.arm:
            for arm in self.arms:
                arm.save(several.folder_of(folder, arm.arm))

    @classmethod
    def load(cls, run_dir: Path, *, foreign_limits: bool = False) -> Experiment:
        """Read the experiment of a run folder.

        foreign_limits: take the limits of a real arm as they are, also from elsewhere; the caller
        does not move the arm under them.

        Raises:
            ConfigError: no run there, config.yaml was edited since (limits included), or the run
                was made elsewhere and raises the limits of a real arm (`raised`).
        """
        import yaml

        from robot_rl.run.raised import is_own_run, refuse_raised

        try:
            config = read_yaml(run_dir / "config.yaml")
            wanted = read_facts(run_dir / RUN)["config_hash"]
            got = config_hash(dict(config))
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            raise ConfigError(
                f"{run_dir} is not a run folder",
                expected="config.yaml and run.json",
                got=str(error),
                fix="give the folder that `robot-rl train` printed",
            ) from error
        if got != wanted:
            raise ConfigError(
                f"the configuration of {run_dir} was changed after the run began",
                expected=f"config hash {wanted}",
                got=got,
                fix="restore config.yaml, or start a new run with the change as an override",
            )
        from robot_rl.safety.limits import as_recorded

        safety = as_recorded(config.get("safety") or {})
        experiment = cls.from_dict(config | {"safety": safety, "run_dir": str(run_dir)})
        if experiment._has_real_graph and not foreign_limits and not is_own_run(run_dir):
            refuse_raised(experiment.limits_of_arms)
        return experiment

    def _section(self, group: str) -> Any:
        return resolve(group, self.config.get(group) or {})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Keys of config.yaml outside the sections."""

    name: str
    seed: int
    runtime: str
    sim: str = engines.MUJOCO  # what moves the simulated arm
    run_dir: str | None = None
    actors: Any = None  # several arms on one learner: names, or how many (`robot_rl.run.arms`)
    arm: str = ""  # in the folder of one of them: which
    pace_hz: float = 0.0  # of simulated actors: control ticks per second of wall time; 0 = unpaced

    def __post_init__(self) -> None:
        """Check the runtime, the engine, the seed, and what only several simulated actors have."""
        engines.check(self.sim)
        if self.pace_hz and not 0.1 <= self.pace_hz <= 1000.0:
            raise ValueError(f"pace_hz must be 0 or lie in [0.1, 1000], got {self.pace_hz}")
        if self.pace_hz and (self.runtime != "lockstep" or self.actors is None):
            raise ValueError(
                "pace_hz paces several simulated actors: runtime=lockstep actors=4 pace_hz=10"
            )
        if self.runtime not in RUNTIMES:
            hint = did_you_mean(self.runtime, RUNTIMES)
            raise ValueError(f"runtime={self.runtime} ({hint})")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if self.seed >= 2**63:  # what a store and torch's generators hold
            raise ValueError(f"seed must be below 2^63, got {self.seed}")


def _mapping(value: Any, where: str, example: str) -> Mapping[str, Any]:
    """A section that may be left out. Raises `ConfigError` when it is something else."""
    if isinstance(value, Mapping) or value is None:
        return value or {}
    raise ConfigError(
        f"{where} is not a section",
        expected="keys with values",
        got=f"{where}={value!r}",
        fix=f"e.g. {example}",
    )


def _check_gym(experiment: Experiment) -> None:
    """Refuse what an environment without a robot cannot do, and spaces that are not supported.

    Raises:
        ConfigError: `experiment` asks for ROS 2, for a device, or for demonstrations of nobody.
    """
    operator = str((experiment.config.get("operator") or {}).get("name"))
    if operator not in GYM_OPERATORS or experiment.runtime != "lockstep":
        raise ConfigError(
            "ROS 2, and devices that it brings, cannot drive a Gymnasium environment",
            expected=f"runtime=lockstep operator={'|'.join(GYM_OPERATORS)}",
            got=f"runtime={experiment.runtime} operator={operator}",
            fix="add what is expected, or start from experiment=gym task.env_id=...",
        )
    if operator == "none" and experiment.train.demos:
        raise ConfigError(
            "nobody is there to record demonstrations",
            expected="train.demos=0, or somebody who drives",
            got=f"operator=none train.demos={experiment.train.demos}",
            fix="operator=scripted (a registered expert), operator=environment (it lets a "
            "person drive by itself), or a device, e.g. operator=gamepad: docs/gym.md",
        )
    experiment.task.spec  # noqa: B018 - makes the environment: a wrong one ends here
    if not experiment.has_person:  # an expert that nobody knows ends here, too
        experiment.operator.open(experiment.task, None)


def _check_joints(experiment: Experiment) -> None:
    """Refuse joint actions for an arm whose driver takes targets of the TCP only.

    Raises:
        ConfigError: names the driver.
    """
    if experiment.is_real and not experiment.driver.joints.is_used:
        raise ConfigError(
            "the actions of the task move the joints, and the arm's driver takes TCP targets only",
            expected="a driver that takes joint targets: driver.joints.kind=position, velocity or "
            "trajectory",
            got=f"task.action=joint with {experiment.driver.title or 'a driver without joints'}",
            fix="a profile with such a driver (robot=ur5e_forward, robot=fr3_joint: docs/robot.md),"
            " or task.action=tcp",
        )


def _check_several(experiment: Experiment) -> None:
    """Build what is each arm's own, and refuse what two of them would share.

    Raises:
        ConfigError: a wrong section of an arm; one device, driver or namespace for two arms; a
            Gymnasium environment.
    """
    if experiment.arm or not experiment.actors:
        return
    if isinstance(experiment.task, GymTask):
        raise ConfigError(
            "a Gymnasium environment has no arm, and actors names several",
            expected="a task with an arm, e.g. experiment=reach",
            got=f"actors={','.join(experiment.actors)}",
            fix="leave actors out",
        )
    for arm in experiment.arms:
        for name in several.OWN:
            arm.section(name)
        if arm.runtime == "ros":
            arm.refuse_script_on_a_real_arm()
    if experiment.runtime != "ros":
        return
    plain = {arm.arm: {s: arm.plain_section(s) for s in several.OWN} for arm in experiment.arms}
    double = (experiment.config.get("ros") or {}).get("double", False)
    several.refuse_sharing(plain, opens_cameras=experiment.is_real and not double)


def _check_described(experiment: Experiment, task: DescribedTask) -> None:
    from robot_rl.run.check_described import Present, check_described

    operator = (experiment.config.get("operator") or {}).get("name", "none")
    present = Present(
        experiment.reward,
        operator,
        experiment.runtime,
        experiment.is_real,
        wrench=experiment.driver.wrench != "none",
    )
    check_described(task, experiment.robot_limits, present)


def _new_run_dir(name: str, seed: int) -> Path:
    return Path("runs") / name / f"{time.strftime('%Y%m%d-%H%M%S')}-s{seed}"


def _plain(value: Any) -> Any:
    """Dataclasses to dicts (init fields), tuples to lists, enums and paths to strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def saved_hash(run_dir: Path) -> str:
    """Hash of the experiment that a run folder belongs to; "" when none was saved there."""
    path = run_dir / RUN
    return str(read_facts(path).get("config_hash", "")) if path.exists() else ""


def _refuse_incomplete(folder: Path) -> None:
    """Refuse rows of which nobody knows the experiment. Raises `ConfigError`."""
    for name in (STORE, ACTOR_STORE, LEARNER_STORE):
        if (folder / name).exists():
            raise ConfigError(
                f"run.json is missing in {folder}",
                expected=f"the file beside {name}: it says to which experiment the rows belong",
                got="an incomplete copy of a run",
                fix="restore it from the original, or choose another folder",
            )
