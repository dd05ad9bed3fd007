"""Cameras of a graph as a person looks at them: what is there, what comes, why nothing comes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")
pytest.importorskip("cv2", reason="OpenCV is not installed")

from robot_rl.cli.main import main
from robot_rl.observe.cameras import TopicCameraConfig
from robot_rl.ros import convert, topics
from robot_rl.ros.camera_watch import Where, find_image_topics
from robot_rl.ros.cameras import calibration_of
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.runtime import visitor
from robot_rl.run.cameras import Eyes, open_eyes
from robot_rl.run.experiment import Experiment
from tests.support.films import HEIGHT, SIZE, WIDTH, ramp, write_film
from tests.support.ros import new_domain, wait_for

pytestmark = pytest.mark.ros
WRIST = "/camera/wrist/color/image_raw"
DEPTH = "/camera/wrist/aligned_depth_to_color/image_raw"
FRONT = "/camera/front/color/image_raw/compressed"
Send = Callable[[Any], None]


@pytest.fixture
def domain_id() -> int:
    return new_domain()


@contextmanager
def driver(domain_id: int, *, encoding: str = "rgb8") -> Iterator[None]:
    """A driver with a raw wrist camera, its intrinsics and depth, and a front camera as JPEG."""
    done, rgb, depth_mm = threading.Event(), ramp(), np.zeros((HEIGHT, WIDTH), np.uint16)
    with ExitStack() as stack:
        node = stack.enter_context(visitor("my_driver", domain_id))
        wrist = [t.named(camera="wrist") for t in (topics.CAMERA_IMAGE, topics.CAMERA_INFO,
                                                   topics.CAMERA_DEPTH)]  # fmt: skip
        image, info, depth = (publisher(node, topic) for topic in wrist)
        front = publisher(node, topics.CAMERA_COMPRESSED.named(camera="front"))

        def send() -> None:
            while not done.wait(1 / 30):
                now_s = time.time()
                msg = convert.image_to(rgb, now_s, "camera")
                msg.encoding = encoding
                image.publish(msg)
                calibration = convert.pinhole(HEIGHT, WIDTH, 0.8)
                info.publish(convert.camera_info_to((HEIGHT, WIDTH), calibration, now_s, "camera"))
                depth.publish(convert.depth_to(depth_mm, now_s, "camera"))
                front.publish(convert.compressed_to(rgb, now_s, "camera"))

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def looked_at(domain_id: int, *words: str) -> Iterator[Eyes]:
    given = ["experiment=lift_pixels", f"ros.domain_id={domain_id}", *words]
    with open_eyes(Experiment.compose(given)) as eyes:
        yield eyes


def head(eyes: Eyes, camera: str) -> dict[str, Any]:
    return eyes.look(camera, {})[0]


def problem(eyes: Eyes, camera: str) -> dict[str, str]:
    return wait_for(lambda: head(eyes, camera)["problem"], 20.0, f"a problem with {camera}")


def test_topics_are_found_with_type_publisher_size_encoding_and_rate(domain_id: int) -> None:
    with driver(domain_id):
        found = {one.topic: one for one in find_image_topics(Where(domain_id=domain_id), 5.0)}
    assert set(found) == {WRIST, FRONT, DEPTH}
    wrist, front = found[WRIST], found[FRONT]
    assert (wrist.type, wrist.encoding, wrist.publishers) == (
        "sensor_msgs/msg/Image", "rgb8", ("my_driver",))  # fmt: skip
    assert (wrist.width, wrist.height) == (front.width, front.height) == (WIDTH, HEIGHT)
    assert wrist.rate_hz > 1.0 and not wrist.problem and "jpeg" in front.encoding
    depth = found[DEPTH]
    assert depth.problem.startswith("16UC1 is no colour picture; read are rgb8")


def test_the_list_says_what_to_write(
    domain_id: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "cameras.json"
    words = [f"ros.domain_id={domain_id}", "--seconds", "5", "--json", str(figures)]
    with driver(domain_id):
        assert main(["camera", "list", *words]) == 0
    text = capsys.readouterr().out
    assert f"use:      cameras.NAME.topic={WRIST}\n" in text
    assert f"use:      cameras.NAME.topic={FRONT}\n" in text
    assert text.count("is no colour picture") == 1
    said = {t["topic"]: t for t in json.loads(figures.read_text())["topics"]}
    assert said[WRIST]["use"] and not said[DEPTH]["use"]


def test_an_empty_graph_says_how_to_fill_it(
    domain_id: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    main(["camera", "list", "--seconds", "0.5"])
    text = capsys.readouterr().out
    assert "no topic with pictures found" in text
    assert f"start the driver in a shell with ROS_DOMAIN_ID={domain_id}" in text


def test_topics_are_seen_as_the_actor_sees_them_with_intrinsics(domain_id: int) -> None:
    crop = "cameras.wrist.crop=[20,10,80,60]"
    size = [f"cameras.wrist.{key}={value}" for key, value in SIZE.items()]
    with (
        driver(domain_id),
        looked_at(domain_id, crop, *size, f"cameras.front.topic={FRONT}") as eyes,
    ):
        wait_for(lambda: min(eyes.number("wrist"), eyes.number("front")) > 20, 30.0, "pictures")
        wait_for(lambda: head(eyes, "wrist")["k"], 20.0, "intrinsics")
        wait_for(lambda: head(eyes, "front")["rate_hz"] > 1.0, 20.0, "a rate")
        wrist, front = head(eyes, "wrist"), head(eyes, "front")
        rgb = eyes.watches["wrist"].sight().rgb
    assert np.array_equal(rgb, ramp())
    assert wrist["part"] == (30, 10, 60, 60) and front["part"] == (20, 0, 120, 120)
    assert wrist["source"] == f"topic {WRIST}" and front["source"] == f"topic {FRONT}"
    assert wrist["problem"] is None and front["problem"] is None
    k = convert.pinhole(HEIGHT, WIDTH, 0.8).k
    assert np.allclose(wrist["source_k"], k)
    assert wrist["k"][0][0] == pytest.approx(k[0, 0] * 64 / 60)


def test_a_topic_that_nobody_publishes_names_the_one_that_was_meant(domain_id: int) -> None:
    meant = ["cameras.wrist.topic=/camera/wrist/colour/image_raw", f"cameras.front.topic={FRONT}"]
    with driver(domain_id), looked_at(domain_id, *meant) as eyes:
        wait_for(lambda: WRIST in (head(eyes, "wrist")["problem"] or {}).get("got", ""), 20.0, "it")
        said = problem(eyes, "wrist")
    assert said["summary"] == "nobody publishes /camera/wrist/colour/image_raw"
    assert f"did you mean '{WRIST}'" in said["fix"]


def test_an_empty_graph_says_in_which_domain_it_is(domain_id: int) -> None:
    with looked_at(domain_id) as eyes:
        said = problem(eyes, "wrist")
    assert (
        f"ROS domain {domain_id}" in said["expected"]
        and f"ROS_DOMAIN_ID={domain_id}" in said["fix"]
    )


def test_a_topic_of_another_type_and_an_unreadable_picture_are_told(domain_id: int) -> None:
    other = f"cameras.front.topic={DEPTH}", "cameras.front.compressed=true"
    with driver(domain_id, encoding="16UC3"), looked_at(domain_id, *other) as eyes:
        wrong_type, unreadable = problem(eyes, "front"), problem(eyes, "wrist")
    assert wrong_type["got"] == "sensor_msgs/msg/Image from my_driver"
    assert wrong_type["fix"] == "cameras.front.compressed=false"
    assert unreadable["summary"] == "cannot read this image" and "16UC3" in unreadable["got"]


def test_two_cameras_that_read_one_topic_differently_are_told(domain_id: int) -> None:
    with looked_at(
        domain_id, f"cameras.front.topic={WRIST}", "cameras.front.compressed=true"
    ) as eyes:
        said = problem(eyes, "wrist") if head(eyes, "wrist")["problem"] else problem(eyes, "front")
    assert said["expected"] == "one type for each topic" and "compressed" in said["fix"]


def test_a_device_is_left_to_the_graph_that_sends_its_pictures(
    domain_id: int, tmp_path: Path
) -> None:
    film = write_film(tmp_path / "film.avi", 20.0)
    words = ["task.images=[wrist]", "cameras.wrist.name=uvc", f"cameras.wrist.device={film}"]
    words += [f"cameras.wrist.{key}={value}" for key, value in SIZE.items()]
    with driver(domain_id), looked_at(domain_id, *words) as eyes:
        wait_for(lambda: eyes.number("wrist"), 20.0, "pictures of the graph")
        assert head(eyes, "wrist")["source"] == f"topic {WRIST}"
    with looked_at(domain_id, *words) as eyes:
        wait_for(lambda: eyes.number("wrist"), 20.0, "pictures of the film")
        assert head(eyes, "wrist")["source"] == "film.avi"


def test_intrinsics_count_for_the_pictures_in_which_they_were_found() -> None:
    """With pictures of another size only what the driver says of these is believed."""
    k = (600.0, 601.0, 319.5, 239.5)
    measured = TopicCameraConfig(k=k, k_size=(640, 480), width=1280, height=960)
    assert calibration_of(measured, None, 960, 1280) is None
    own = calibration_of(measured, None, 480, 640)
    assert own is not None and own.k[0, 0] == 600.0
    info = convert.camera_info_to((960, 1280), convert.pinhole(960, 1280, 0.8), 0.0, "camera")
    said = calibration_of(measured, info, 960, 1280)
    assert said is not None and said.k[0, 0] == convert.pinhole(960, 1280, 0.8).k[0, 0]
