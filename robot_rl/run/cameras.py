"""Looks at the cameras of an experiment: `robot-rl camera show | roi` (docs/cameras.md).

A device that no graph reads is opened here; every other camera is read from the graph's topics.
What the network sees is cut by the same `View` as in a run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.overlay import draw_frame, tcp_in_camera
from robot_rl.errors import ConfigError, RobotRLError, SetupError, SpecError, did_you_mean
from robot_rl.observe.cameras import CameraConfig
from robot_rl.observe.pictures import Crop, View
from robot_rl.observe.watching import Blind, DeviceWatch, Sight, Watch
from robot_rl.types import Pose

if TYPE_CHECKING:
    from robot_rl.ros.camera_watch import GraphWatch
    from robot_rl.run.experiment import Experiment

FIRST_S = 15.0  # `--save` waits this long for a camera; opening one takes seconds
SETTLE = 10  # pictures before the one that is saved: the exposure has to settle
JPEG_QUALITY = 90
Said = Mapping[str, Any]
Look = tuple[dict[str, Any], bytes, bytes]
"""What is known of a camera, its whole picture (JPEG), what the network sees (PNG, unchanged)."""


class Eyes:
    """The cameras of an experiment, each whole and as the network sees it.

    Args:
        configs: camera -> what the section `cameras` says of it.
        sizes: camera -> (height, width) that the network sees.
        watches: camera -> what comes from it.
        tcp_in_base: where the TCP is, None = nobody says it; drawn where a camera is calibrated.
    """

    def __init__(
        self,
        configs: Mapping[str, CameraConfig],
        sizes: Mapping[str, tuple[int, int]],
        watches: Mapping[str, Watch],
        tcp_in_base: Callable[[], Pose | None] = lambda: None,
    ) -> None:
        self.configs, self.sizes, self.watches = dict(configs), sizes, watches
        self._tcp_in_base = tcp_in_base

    def about(self) -> list[dict[str, Any]]:
        """What a page must know once of each camera; sizes in pixels."""
        return [
            {
                "name": name,
                "seen_width": self.sizes[name][1],
                "seen_height": self.sizes[name][0],
                "crop": config.crop,
                "drawn_width": config.width,
                "drawn_height": config.height,
            }
            for name, config in self.configs.items()
        ]

    def number(self, name: str) -> int:
        """Number of the newest picture of a camera. Raises `ConfigError` for one that is not."""
        return self._watch(name).sight().number

    def look(self, name: str, said: Said) -> Look:
        """The newest picture.

        Args:
            said: "crop" = cut as drawn on the page (null = all of it), instead of as configured;
                "after" = number of the picture that the page has: it is not sent twice if the
                crop is the same ("same").

        Raises:
            ConfigError: there is no such camera.
        """
        sight = self._watch(name).sight()
        head = _words(sight)
        if sight.rgb is None:
            return head, b"", b""
        rows, columns = sight.rgb.shape[:2]
        old = bool(said.get("same")) and said.get("after") == sight.number
        shown = self.with_tcp(name, sight)
        whole = b""
        if said.get("after") != sight.number:
            whole = jpeg(sight.rgb if shown is None else shown)
        try:
            view = self.view(name, said, (rows, columns))
            seen = b"" if old else png(view.of(sight.rgb))
            head |= _cut(view, sight)
        except (ConfigError, SpecError) as error:
            seen = b""
            head["crop_problem"] = words_of(error)
        return head, whole, seen

    def view(self, name: str, said: Said, size: tuple[int, int]) -> View:
        """What is seen of pictures of `size` (height, width), as configured or as drawn.

        Raises:
            ConfigError: the drawn crop is none, or leaves the picture.
        """
        config = self.configs[name]
        if "crop" in said:
            config = with_crop(config, said["crop"], size)
        return config.view(self.sizes[name])

    def with_tcp(self, name: str, sight: Sight) -> NDArray[np.uint8] | None:
        """The picture with the axes of the TCP drawn into it; None when its place is not known."""
        if sight.rgb is None or sight.calibration is None or not self.configs[name].pose:
            return None
        tcp = tcp_in_camera(self.configs[name], self._tcp_in_base())
        return None if tcp is None else draw_frame(sight.rgb, tcp, sight.calibration)

    def _watch(self, name: str) -> Watch:
        return self.watches[known_camera(name, self.configs)]


def known_camera(name: str, known: Mapping[str, Any]) -> str:
    """The name, if it is one of the task's cameras; else `ConfigError`."""
    if name in known:
        return name
    raise ConfigError(
        f"the task has no camera '{name}'",
        expected="a camera of the task (task.images)",
        got=name,
        fix=did_you_mean(name, known) if known else f"'task.images=[{name}]' gives it this one",
    )


def with_crop(config: CameraConfig, crop: Any, size: tuple[int, int]) -> CameraConfig:
    """The camera with a crop that was drawn in pictures of `size` (height, width).

    Raises:
        ConfigError: it is no crop, or leaves the picture.
    """
    rows, columns = size
    expected = f"[left, top, width, height] within {columns} x {rows} pixels"
    fix = "draw it again within the picture; null = the whole picture"
    four = isinstance(crop, list | tuple) and len(crop) == 4
    if crop is not None and not (four and all(type(x) is int for x in crop)):
        raise ConfigError("this is no crop", expected=expected, got=repr(crop), fix=fix)
    cut: Crop | None = None if crop is None else (crop[0], crop[1], crop[2], crop[3])
    try:
        return dataclasses.replace(config, width=columns, height=rows, crop=cut)
    except ValueError as error:
        raise ConfigError(
            "the crop leaves the picture", expected=expected, got=str(error), fix=fix
        ) from error


def _words(sight: Sight) -> dict[str, Any]:
    """What is known without the picture's pixels, fit for JSON."""
    rows, columns = (0, 0) if sight.rgb is None else sight.rgb.shape[:2]
    return {
        "source": sight.source,
        "number": sight.number,
        "width": columns,
        "height": rows,
        "rate_hz": sight.rate_hz,
        "age_s": sight.age_s if sight.number else None,
        "lost": sight.lost,
        "problem": words_of(sight.problem),
        "source_k": None if sight.calibration is None else sight.calibration.k.tolist(),
    }


def _cut(view: View, sight: Sight) -> dict[str, Any]:
    """What is seen of the picture; raises `SpecError` as `View.part`."""
    assert sight.rgb is not None
    rows, columns = sight.rgb.shape[:2]
    part = view.part(rows, columns)
    k = None if sight.calibration is None else view.intrinsics(sight.calibration.k, rows, columns)
    return {
        "crop": view.crop,
        "part": part,
        "k": None if k is None else k.tolist(),
        "warning": too_small(view, part),
    }


def too_small(view: View, part: Crop) -> str:
    """What to say of a part with fewer pixels than the network sees; "" when it has enough."""
    *_, width, height = part
    if width >= view.width and height >= view.height:
        return ""
    return (
        f"only {width} x {height} pixels are seen, and scaled up to the network's {view.width} x "
        f"{view.height}: draw a larger crop, or choose a smaller task.image_size"
    )


def words_of(error: RobotRLError | None) -> dict[str, str] | None:
    """An error of ours as JSON."""
    if error is None:
        return None
    return {"summary": error.summary, "expected": error.expected, "got": error.got,
            "fix": error.fix}  # fmt: skip


def jpeg(rgb: NDArray[np.uint8]) -> bytes:
    """A picture [H, W, 3] RGB to be looked at."""
    import cv2

    return _encoded(rgb, ".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])


def png(rgb: NDArray[np.uint8]) -> bytes:
    """A picture [H, W, 3] RGB with every pixel as it is."""
    return _encoded(rgb, ".png", [])


def _encoded(rgb: NDArray[np.uint8], kind: str, settings: list[int]) -> bytes:
    import cv2

    done, data = cv2.imencode(kind, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), settings)
    assert done
    return data.tobytes()


# --- where the pictures come from -----------------------------------------------------------------


@contextmanager
def open_eyes(experiment: Experiment) -> Iterator[Eyes]:
    """The cameras of an experiment, open as long as the block lasts.

    Raises:
        ConfigError: the task has no cameras.
        SetupError: OpenCV is missing, or all cameras are topics and there is no ROS 2.
    """
    _need_opencv()
    cameras, spec = cameras_of(experiment), experiment.task.spec
    sizes = {name: spec.picture_size(name) for name in cameras}
    with ExitStack() as stack:
        graph: GraphWatch | None = None
        try:
            graph = stack.enter_context(_graph(experiment))
        except SetupError as error:
            if not experiment.devices:
                raise
            blind = Blind(error)
        else:
            blind = None
        watches: dict[str, Watch] = {}
        for name, config in cameras.items():
            device = experiment.devices.get(name)
            if device is not None and not (graph and graph.sends(name, config)):
                opened = DeviceWatch(name, device)
                stack.callback(opened.close)
                watches[name] = opened
            elif graph is not None:
                watches[name] = graph.watch(name, config, sizes[name])
            else:
                assert blind is not None
                watches[name] = blind
        if graph is not None:
            graph.start()
        yield Eyes(cameras, sizes, watches, lambda: graph.tcp_in_base() if graph else None)


def cameras_of(experiment: Experiment) -> dict[str, CameraConfig]:
    """The cameras of a task. Raises `ConfigError` when it has none."""
    if not experiment.cameras:
        raise ConfigError(
            "the task has no cameras",
            expected="cameras in the observation",
            got=f"task.images=[] of task {experiment.task.name}",
            fix="name them: 'task.images=[wrist]'; robot-rl camera list shows what is connected",
        )
    return experiment.cameras


@contextmanager
def _graph(experiment: Experiment) -> Iterator[GraphWatch]:
    """The graph of the experiment, whether it runs or not. Raises `SetupError` without ROS 2."""
    try:
        from robot_rl.ros.camera_watch import Where, graph_watch
    except ModuleNotFoundError as error:
        raise SetupError(
            "topics of cameras need ROS 2",
            expected=f"import {error.name} works",
            got=str(error),
            fix="source ROS 2, or: pip install 'robot-rl[ros]'; devices need none, e.g. "
            "cameras.wrist.name=uvc",
        ) from error
    from robot_rl.ros.graph import RealGraphConfig

    ros = experiment.ros
    real = isinstance(ros, RealGraphConfig)
    remaps = {**experiment.driver.topics, **ros.remaps} if real else {}
    where = Where(domain_id=ros.domain_id, namespace=ros.namespace, remaps=remaps)
    with graph_watch(where) as made:
        yield made


def _need_opencv() -> None:
    try:
        import cv2  # noqa: F401
    except ModuleNotFoundError as error:
        raise SetupError(
            "pictures need the package 'opencv-python-headless'",
            expected="import cv2 works",
            got=str(error),
            fix="run make setup, or: pip install 'robot-rl[sim]'",
        ) from error


# --- without a page -------------------------------------------------------------------------------


def save_pictures(
    eyes: Eyes, folder: Path, tell: Callable[[str], object], first_s: float = FIRST_S
) -> bool:
    """Write NAME_whole.png and NAME_seen.png of each camera; say what came.

    Args:
        tell: gets a line for each camera, or the error in its place.
        first_s: how long a camera is waited for.

    Returns:
        Whether every camera has sent a picture that the network can see.
    """
    folder.mkdir(parents=True, exist_ok=True)
    give_up_s, whole = time.monotonic() + first_s, True
    for name, watch in eyes.watches.items():
        while time.monotonic() < give_up_s and watch.sight().number < SETTLE:
            time.sleep(0.02)
        sight = watch.sight()
        if sight.rgb is None:
            whole = False
            tell(f"{name}: {sight.problem or 'no picture came'}")
            continue
        (folder / f"{name}_whole.png").write_bytes(png(sight.rgb))
        shown = eyes.with_tcp(name, sight)
        if shown is not None:
            (folder / f"{name}_tcp.png").write_bytes(png(shown))
        rows, columns = sight.rgb.shape[:2]
        try:
            view = eyes.view(name, {}, (rows, columns))
            (folder / f"{name}_seen.png").write_bytes(png(view.of(sight.rgb)))
        except SpecError as error:
            whole = False
            tell(f"{name}: {error}")
            continue
        cut = _cut(view, sight)
        left, top, width, height = cut["part"]
        tell(
            f"{name}: {columns} x {rows} from {sight.source}; the network sees {width} x {height} "
            f"of it from ({left}, {top}), at {view.width} x {view.height}"
        )
        if cut["warning"]:
            tell(f"{name}: {cut['warning']}")
    return whole
