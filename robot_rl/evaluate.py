"""`robot-rl eval`: what a trained policy is worth on held-out starts, and a video of it.

Runs in lockstep whatever runtime trained the policy: the same task, gate and loop, no ROS needed.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.act.policy import PolicyRuntime, load_policy
from robot_rl.errors import RobotRLError
from robot_rl.experiment import Experiment
from robot_rl.gym_loop import GymBench
from robot_rl.lockstep import Bench, make_bench
from robot_rl.operate.scripted import NoOperator
from robot_rl.session import EVAL_SEED, Session
from robot_rl.types import Row, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

VIDEO_EPISODES = 3
VIDEO_SIZE = (480, 640)
PAUSE_S = 0.6  # the last picture of an episode stays, so that the eye sees how it ended


class _Discard:
    """Metrics that nobody keeps; evaluation writes eval.json."""

    def write(self, env_steps: int, values: dict[str, float], **text: str) -> None:
        """Drop."""


def make_eval_session(
    experiment: Experiment, run_dir: Path, bench_hooks: dict[str, Any] | None = None
) -> tuple[Session, Bench | GymBench]:
    """A lockstep session over the run's saved policy, with nobody at the controls.

    Raises:
        CheckpointError: the run has no usable policy.
    """
    task = experiment.task
    policy = PolicyRuntime(experiment.algo, task.spec, seed=experiment.seed)
    policy.load(load_policy(run_dir, task.spec))
    bench = make_bench(
        experiment, policy, record=_forget, operator=NoOperator(task), **(bench_hooks or {})
    )
    session = Session(bench.loop, bench.reset, experiment, metrics=_Discard())
    return session, bench


def evaluate(run_dir: Path, *, episodes: int = 100, video: bool = True) -> dict[str, Any]:
    """Deterministic and stochastic success with Wilson intervals; writes eval.json, eval.mp4.

    Raises:
        CheckpointError: the run has no usable policy.
    """
    experiment = Experiment.load(run_dir)
    session, _ = make_eval_session(experiment, run_dir)
    before: dict[str, Any] = {}
    if (run_dir / "eval.json").is_file():
        before = json.loads((run_dir / "eval.json").read_text())
    result = before | {
        "deterministic": session.evaluate(episodes).as_dict(),
        "stochastic": session.evaluate(episodes, deterministic=False).as_dict(),
        "evaluated_in": "lockstep",
    }
    write_eval(run_dir, result)
    if video:
        record_video(run_dir, experiment)
    return result


def write_eval(run_dir: Path, result: dict[str, Any]) -> None:
    """Write eval.json: the whole file, or the one before stays."""
    temporary = run_dir / "eval.json.tmp"
    temporary.write_text(json.dumps(result, indent=2))
    temporary.replace(run_dir / "eval.json")


def record_video(run_dir: Path, experiment: Experiment | None = None) -> Path | None:
    """Film a few deterministic episodes into eval.mp4 (H.264); None when pictures cannot be made.

    A missing OpenGL or codec costs the video, not the evaluation: it is logged with its fix.
    """
    experiment = experiment or Experiment.load(run_dir)
    pictures: list[NDArray[np.uint8]] = []
    camera: Any = None

    def film(_step: Step) -> None:
        if camera is not None:
            pictures.append(camera.render_video_frame())

    session, bench = make_eval_session(experiment, run_dir, {"on_step": film})
    try:
        camera = bench.camera(*VIDEO_SIZE)
        rate_hz = experiment.task.spec.control_hz
        for index in range(VIDEO_EPISODES):
            session.evaluate(1, EVAL_SEED + index)
            pictures += [pictures[-1]] * round(PAUSE_S * rate_hz)
        return write_mp4(run_dir / "eval.mp4", pictures, rate_hz)
    except RobotRLError as error:
        log.warning("no video: %s", error)
        return None
    finally:
        if camera is not None:
            camera.close()


def write_mp4(path: Path, pictures: list[NDArray[np.uint8]], rate_hz: float) -> Path:
    """Encode RGB uint8 pictures [H, W, 3] as H.264 that browsers play; whole file or none."""
    import av

    temporary = path.with_suffix(".tmp.mp4")
    height, width = pictures[0].shape[:2]
    with av.open(str(temporary), "w") as container:
        stream = container.add_stream("libx264", rate=round(rate_hz), options={"crf": "23"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    temporary.replace(path)
    return path


def _forget(_rows: list[Row]) -> None:
    """Evaluation of a finished run leaves its store alone."""
