"""The page of cameras: who gets in, and in a real browser what is shown, drawn and saved."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

pytest.importorskip("cv2", reason="OpenCV is not installed")

import cv2

from robot_rl.console.address import free_port
from robot_rl.console.cameras import camera_server
from robot_rl.console.remembered import Role
from robot_rl.errors import SetupError
from robot_rl.observe.watching import Blind, DeviceWatch, Watch
from robot_rl.run.camera_crop import CropKeeper
from robot_rl.run.cameras import Eyes
from robot_rl.run.experiment import Experiment
from tests.console.test_review_page import OVERFLOWING, SIZES
from tests.support import entry
from tests.support.films import HEIGHT, WIDTH, ramp, write_film
from tests.support.served import new_page, until

SEEN = 64  # pixels of what the network of lift_pixels sees, each way
SHOTS = os.environ.get("ROBOT_RL_SCREENSHOTS")
MINE = """# @package _global_
defaults:
  - lift_pixels
  - _self_
name: mine # of the task
cameras:
  wrist: { name: uvc, device: FILM, width: WIDE, height: HIGH } # in the hand
  front: { name: uvc, device: no-such-camera }
"""
PIXELS = """
(query) => {
  const c = document.querySelector(query);
  return [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data];
}
"""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A camera's film of three minutes."""
    return write_film(tmp_path_factory.mktemp("film") / "film.avi", 180.0)


class Page:
    """The page of an experiment, served. A wrist camera that sends a film, a front one that is not
    there; no ROS."""

    def __init__(self, config_dir: Path, drawn: str) -> None:
        words = ["experiment=mine"]
        experiment = Experiment.compose(words, config_dir)
        self.opened = {name: DeviceWatch(name, d) for name, d in experiment.devices.items()}
        watches: dict[str, Watch] = {**self.opened}
        sizes = {name: experiment.task.spec.picture_size(name) for name in watches}
        self.eyes = Eyes(experiment.cameras, sizes, watches)
        keeper = CropKeeper(self.eyes, words, config_dir)

        def keep(name: str, crop: Any) -> dict[str, Any]:
            kept = keeper.keep(name, crop)
            return {"said": f"written to {kept.path}", "words": kept.words, "warning": kept.warning}

        port = free_port(8300)
        self.url = f"http://127.0.0.1:{port}"
        self.server, self.access = camera_server(
            self.eyes, keep, "127.0.0.1", port, title="mine", drawn=drawn
        )
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        until(lambda: self.server.started)

    def invite(self, role: Role = Role.OPERATOR) -> str:
        return f"{self.url}/enter?token={self.access.invite(role)}"

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join()
        for watch in self.opened.values():
            watch.close()


@pytest.fixture
def config_dir(tmp_path: Path, film: Path) -> Path:
    folder = tmp_path / "my_configs"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text(
        MINE.replace("FILM", str(film)).replace("WIDE", str(WIDTH)).replace("HIGH", str(HEIGHT))
    )
    return folder


@pytest.fixture
def shows(config_dir: Path) -> Iterator[Page]:
    """The page that shows."""
    made = Page(config_dir, "")
    yield made
    made.close()


@pytest.fixture
def draws(config_dir: Path) -> Iterator[Page]:
    """The page on which the crop of the wrist camera is drawn."""
    made = Page(config_dir, "wrist")
    yield made
    made.close()


# --- who gets in ----------------------------------------------------------------------------------


def enter(page: Page, role: Role = Role.OPERATOR) -> httpx.Client:
    return entry.entered(page.invite(role))


def socket_of(page: Page, client: httpx.Client, name: str, **headers: str) -> Any:
    return entry.socket_of(client, f"/ws/camera/{name}", **headers)


def test_nobody_gets_in_without_a_link_or_from_another_page(draws: Page) -> None:
    assert httpx.get(draws.url + "/").status_code == 401
    assert httpx.get(draws.url + "/api/cameras").status_code == 401
    link = draws.invite()
    assert httpx.get(link).status_code == 303 and httpx.get(link).status_code == 403
    client = enter(draws)
    answer = client.get("/")
    assert answer.status_code == 200 and "default-src 'none'" in answer.headers[
        "content-security-policy"]  # fmt: skip
    assert client.get("/api/cameras").json()["drawn"] == "wrist"
    body = {"crop": [0, 0, 50, 50]}
    foreign = client.post("/api/crop", json=body, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    with pytest.raises(InvalidStatus):
        socket_of(draws, client, "wrist", Origin="http://evil.example")
    with pytest.raises(InvalidStatus):
        socket_of(draws, httpx.Client(base_url=draws.url), "wrist")
    watcher = enter(draws, Role.OBSERVER)
    assert watcher.post("/api/crop", json=body).status_code == 403


def test_a_socket_answers_questions_and_closes_at_nonsense(shows: Page) -> None:
    client = enter(shows)

    def ask(said: Any) -> tuple[dict[str, Any], bytes, bytes]:
        line.send(said if isinstance(said, str) else json.dumps(said))
        data = line.recv(timeout=20.0)
        head, whole, _ = struct.unpack_from("<III", data)
        return (
            json.loads(data[12 : 12 + head]),
            data[12 + head :][:whole],
            data[12 + head + whole :],
        )

    with socket_of(shows, client, "wrist") as line:
        head = until(lambda: (answer := ask({"after": 0}))[0]["number"] and answer)[0]
        assert (head["width"], head["height"]) == (WIDTH, HEIGHT) and head["problem"] is None
        drawn, _, seen = ask({"after": 0, "crop": [100, 0, 60, 60]})
        assert drawn["part"] == [100, 0, 60, 60]
        picture = cv2.imdecode(np.frombuffer(seen, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None and picture.shape == (SEEN, SEEN, 3)
        assert picture[..., 2].min() > 140  # the right end
        with pytest.raises(ConnectionClosed):
            ask("no JSON")
    for bad in ("[1]", "7"):
        with socket_of(shows, client, "wrist") as line, pytest.raises(ConnectionClosed):
            ask(bad)
    with socket_of(shows, client, "wirst") as line, pytest.raises(ConnectionClosed) as unknown:
        ask({})
    assert "no camera 'wirst'" in str(unknown.value)


def test_a_crop_that_cannot_be_is_refused_and_the_file_stays(draws: Page, config_dir: Path) -> None:
    client, path = enter(draws), config_dir / "experiment" / "mine.yaml"
    until(lambda: draws.eyes.number("wrist"))
    before = path.read_text()
    for crop in ([100, 0, 100, 20], [0, 0, 0, 0], "x", [1, 2, 3, 4.5]):
        answer = client.post("/api/crop", json={"crop": crop})
        assert answer.status_code == 409 and "fix:" in answer.json()["error"]
    assert path.read_text() == before


# --- in a browser ---------------------------------------------------------------------------------


def opened(context: Any, page: Page) -> Any:
    """The page in a browser; `problems` collects its errors."""
    made = new_page(context)
    made.goto(page.invite())
    until(lambda: made.locator("[data-camera=wrist] dd").count() >= 5)
    return made


def shoot(page: Any, name: str) -> None:
    """A picture of the page, when asked for."""
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def facts(page: Any, camera: str) -> dict[str, str]:
    """Key -> value of a camera's table; a plain x for the page's sign."""
    box = page.locator(f"[data-camera={camera}] .facts > dl")
    values = [text.replace("\u00d7", "x") for text in box.locator("dd").all_inner_texts()]
    return dict(zip(box.locator("dt").all_inner_texts(), values, strict=True))


def test_the_page_shows_what_the_network_sees_and_why_a_camera_sends_nothing(
    context: Any, shows: Page
) -> None:
    page = opened(context, shows)
    until(lambda: " Hz" in facts(page, "wrist")["picture"])
    said = facts(page, "wrist")
    assert (
        said["picture"].startswith("160 x 120") and said["seen of it"] == "120 x 120 from (20, 0)"
    )
    assert said["intrinsics"] == "nobody has said them" and said["network"].startswith("64 x 64")
    width, height, *pixels = page.evaluate(PIXELS, "[data-camera=wrist] .seen canvas")
    assert (width, height) == (SEEN, SEEN)
    shown = np.array(pixels).reshape(SEEN, SEEN, 4)[..., :3]
    seen = shows.eyes.configs["wrist"].view((SEEN, SEEN)).of(ramp())
    assert np.abs(shown.astype(int) - seen).mean() < 6.0  # a film is JPEG
    scaling = page.locator("[data-camera=wrist] .seen canvas").evaluate(
        "x => getComputedStyle(x).imageRendering"
    )
    assert scaling == "pixelated"
    part = page.locator("[data-camera=wrist] .part")
    assert [part.get_attribute(k) for k in ("x", "y", "width", "height")] == [
        "20",
        "0",
        "120",
        "120",
    ]
    problem = page.locator("[data-camera=front] .problem")
    until(problem.is_visible)
    text = problem.inner_text()
    assert "UVC camera" in text and "expected" in text and "fix" in text
    assert page.locator("[data-camera=front] h2 .age").inner_text() == "no picture"
    assert not page.locator(".crop").first.is_visible()  # this page only shows
    fits(page)
    shoot(page, "cameras")
    assert page.problems == []


def fits(page: Any) -> None:
    """Nothing sticks out, on a phone and on a wall; pictures have their shape and can be seen."""
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(OVERFLOWING) == [], width
        box = page.locator("[data-camera=wrist] .whole .frame").bounding_box()
        assert box["width"] > 250 and box["width"] / box["height"] == pytest.approx(4 / 3, 0.02)
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_camera_that_goes_is_told_and_its_last_picture_fades(context: Any, shows: Page) -> None:
    page = opened(context, shows)
    gone = SetupError("it is gone", expected="pictures", got="none", fix="plug it in")
    watches: Any = shows.eyes.watches
    watches["wrist"] = Blind(gone)
    until(lambda: "it is gone" in page.locator("[data-camera=wrist] .problem").inner_text())
    assert "red" in (page.locator("[data-camera=wrist] h2 .age").get_attribute("class") or "")
    assert page.problems == []


def crop_of(page: Any) -> Any:
    """The crop as it is drawn now."""
    return page.evaluate("robotRL.cameras.wrist?.crop")


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag from one pixel of the picture to another, as a hand does: through the middle."""
    box = page.locator(".whole svg").bounding_box()
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    for i, (x, y) in enumerate((start, middle, end)):
        page.mouse.move(box["x"] + box["width"] * x / WIDTH, box["y"] + box["height"] * y / HEIGHT)
        if i == 0:
            page.mouse.down()
    page.mouse.up()


@pytest.fixture
def drawing(context: Any, draws: Page) -> Any:
    """The page on which a crop is drawn, with its first picture; fails on any error in it."""
    page = opened(context, draws)
    assert page.locator(".look").count() == 1  # only the camera that is drawn
    until(lambda: page.locator(".whole svg").get_attribute("viewBox") == f"0 0 {WIDTH} {HEIGHT}")
    yield page
    assert page.problems == []


def test_a_crop_is_drawn_and_moved_and_the_network_s_view_follows(drawing: Any) -> None:
    drag(drawing, (20, 10), (120, 90))
    assert crop_of(drawing) == [20, 10, 100, 80]
    until(lambda: facts(drawing, "wrist").get("seen of it") == "80 x 80 from (30, 10)")
    drag(drawing, (70, 50), (90, 40))  # inside: it moves
    assert crop_of(drawing) == [40, 0, 100, 80]
    drag(drawing, (140, 80), (130, 70))  # the lower right corner
    assert crop_of(drawing) == [40, 0, 90, 70]
    for keys in ("ArrowLeft", "Shift+ArrowDown", "Control+ArrowRight"):
        drawing.keyboard.press(keys)
    assert crop_of(drawing) == [39, 10, 91, 70]
    fields = ("left", "top", "width", "height")
    typed = [drawing.locator(f"[name={name}]").input_value() for name in fields]
    assert typed == ["39", "10", "91", "70"]
    until(lambda: facts(drawing, "wrist").get("seen of it") == "70 x 70 from (49, 10)")
    drawing.locator("[data-do=fit]").click()
    assert crop_of(drawing) == [49, 10, 70, 70]


def test_what_is_typed_is_judged_by_the_program(drawing: Any) -> None:
    drag(drawing, (20, 10), (120, 90))
    drawing.locator("[name=width]").fill("999")
    until(lambda: "leaves the picture" in drawing.locator(".problem").inner_text())
    assert drawing.locator(".save").is_disabled()
    drawing.locator("[name=width]").fill("30")
    until(lambda: "scaled up" in drawing.locator(".warning").inner_text())
    until(drawing.locator(".save").is_enabled)  # small is not wrong
    fits(drawing)


def test_a_crop_is_saved_into_the_persons_file(drawing: Any, config_dir: Path) -> None:
    path = config_dir / "experiment" / "mine.yaml"
    before = path.read_text()
    drag(drawing, (49, 10), (129, 110))
    until(lambda: facts(drawing, "wrist").get("seen of it") == "80 x 80 from (49, 20)")
    drawing.locator(".save").click()
    until(lambda: "written to" in drawing.locator(".saved").inner_text())
    assert drawing.locator(".saved code").inner_text() == (
        "'cameras.wrist.crop=[49,10,80,100]' cameras.wrist.width=160 cameras.wrist.height=120"
    )
    after = path.read_text()
    assert after == before.replace("height: 120 }", "height: 120, crop: [49, 10, 80, 100] }")
    wrist = Experiment.compose(["experiment=mine"], config_dir).cameras["wrist"]
    assert wrist.crop == (49, 10, 80, 100)
    shoot(drawing, "crop")
    drawing.reload()
    until(lambda: crop_of(drawing) == [49, 10, 80, 100])
    until(drawing.locator(".save").is_enabled)
    drawing.locator("[data-do=all]").click()
    drawing.locator(".save").click()
    until(lambda: "crop: null" in path.read_text())
