"""Text of a store, a run and a robot is shown as text, whatever markup stands in it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, EpisodeStart, Label, Step
from tests.console.test_page import page
from tests.support.served import rows_of, scores_of, until

__all__ = ["page"]  # a fixture

STRUCK = "[...document.querySelectorAll('img[src=x]')].map((x) => x.alt)"


def mark(place: str) -> str:
    """Markup that would leave an element behind, and run a program where a page allowed it."""
    return f"""'"><img src=x alt="{place}" onerror="globalThis.struck='{place}'">"""


def shown(page: Any, *places: str) -> None:
    """Wait until each of them stands on the page as it was written; none has become markup."""
    for place in places:
        text = f"document.body.textContent.includes({json.dumps(mark(place))})"
        until(partial(page.evaluate, text))
    page.wait_for_timeout(200)  # a picture that cannot be loaded says so a little later
    assert page.evaluate(STRUCK) == []
    assert page.evaluate("globalThis.struck ?? ''") == ""


def tell(run_dir: Path, name: str, **line: object) -> None:
    """Append a line of figures."""
    with (run_dir / name).open("a") as file:
        file.write(json.dumps({"env_steps": 0, **line}) + "\n")


def item(place: str, status: str) -> dict[str, str]:
    """An item of the list "Ready?", all of whose texts are markup."""
    texts = {key: mark(f"{place}-{key}") for key in ("name", "text", "fix", "never")}
    return texts | {"status": status}


def fill_store(run_dir: Path) -> EpisodeId:
    """An episode whose every text is markup."""
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        spec = store.spec
        rows = rows_of(spec, "run", 5, 4, success=True)
        id_ = replace(rows[0].id, run=mark("run"))
        texts = {EpisodeStart: {"purpose": mark("purpose")}, Step: {"reason": mark("step")}}
        store.append([replace(row, id=id_, **texts.get(type(row), {})) for row in rows])
        labels = scores_of(5, [0.5] * 4, "classifier", mark("model"))
        store.append([replace(label, id=id_) for label in labels])
        author = mark("person")
        store.append([Label(id_, 0, None, "success", 1.0, "person", author, 1)])
    return id_


def test_nothing_that_a_run_or_a_robot_says_becomes_markup(
    page: Any, run_dir: Path, robot: Any, console: Any
) -> None:
    fill_store(run_dir)
    what, fix = mark("finding"), mark("mending")
    found = {"diagnostics/odd": 1.0, "diagnostics/odd/what": what, "diagnostics/odd/fix": fix}
    tell(run_dir, "learner.jsonl", **found)
    tell(run_dir, "metrics.jsonl", state=mark("state"))
    gate = {"mode": "hold", "reason": mark("gate"), "waits": mark("waits")}
    episode = {"purpose": mark("now"), "active": True}
    robot.view = robot.view | {"gate": gate, "episode": episode, "driver": mark("driver")}
    robot.view = robot.view | {"device_problem": mark("device")}
    shown(page, "finding", "mending", "gate", "state", "device", "model")
    ready = {"items": [item("bad", "fail"), item("odd", "warn")], "accept": [mark("held")]}
    robot.view = robot.view | {"ready": ready}
    shown(page, *(f"bad-{key}" for key in ("fix", "never")))
    asks = {"asks": mark("asked"), "gate": {"mode": "hold", "reason": "no command"}}
    robot.view = {k: v for k, v in robot.view.items() if k != "ready"} | asks
    shown(page, "asked")
    robot.view = robot.view | {"asks": ""}
    failed = [{"episode": 1, "at": mark("at"), "steps": 12, "reason": mark("why")}]
    tell(run_dir, "metrics.jsonl", state="deployment", deploy_failed=json.dumps(failed))
    shown(page, "why")
    tell(run_dir, "metrics.jsonl", state=mark("state"))
    until(lambda: not page.locator("#deploy").is_visible())
    console.console.feed.about |= {"task": mark("task"), "run": mark("folder")}
    console.console.feed.about |= {"cameras": ["front", mark("camera")]}
    robot.shapes[mark("camera")] = (32, 32)
    page.reload()
    until(lambda: page.evaluate("!!globalThis.robotRL"))
    shown(page, "task", "folder", "camera", "finding")


def test_nothing_of_an_episode_becomes_markup(page: Any, run_dir: Path, console: Any) -> None:
    id_ = fill_store(run_dir)
    page.goto(console.url + "/review")
    until(lambda: page.evaluate("!!globalThis.robotRL?.data"))
    page.locator("#space .episode", has_text="purpose").click()
    until(lambda: page.locator("#name").inner_text() == f"episode {id_.episode}")
    shown(page, "purpose", "step", "model", "person")
