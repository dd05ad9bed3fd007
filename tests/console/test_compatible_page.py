"""Compatibility on the pages: the odd episode comes first in review, and a bar while one drives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.config.run_folder import COMPATIBLE, COMPATIBLE_EPISODES
from robot_rl.reward.compatible import MEMBERS, Ensemble, inputs_of
from robot_rl.spec import Spec
from robot_rl.store.labels import DROVE
from robot_rl.store.store import Store
from robot_rl.types import Driver, EpisodeId, Label, Step
from tests.console.test_page import OUTSIDE, open_page, shoot
from tests.console.test_review_page import (
    CONTRAST,
    OVERFLOWING,
    SIZES,
    UNNAMED,
    address,
    listed,
    opened,
    ready,
)
from tests.support.served import Served, rows_of, until, write_figures

HIDDEN = 4  # width of the ensemble's only layer


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run without cameras: ada has driven episodes 0 to 2, bob 3 and 4."""
    from robot_rl.run.experiment import Experiment

    experiment = Experiment.compose(["experiment=pick_insert", f"run_dir={tmp_path / 'run'}"])
    folder = experiment.save()
    with Store(folder / "actor.sqlite", spec=experiment.spec, reserve_bytes=0) as store:
        for number in range(5):
            drive(store, number, 0.0)
            who = "ada" if number < 3 else "bob"
            id_ = EpisodeId("run", "actor-0", number)
            store.append([Label(id_, 0, None, DROVE, 12.0, "person", who, number)])
    write_figures(folder)
    return folder


def drive(store: Store, number: int, speed: float) -> None:
    """An episode in which somebody moves along x, with an open hand."""
    assert store.spec is not None
    action = np.zeros(store.spec.action.size, np.float32)
    action[0], action[-1] = speed, 1.0
    rows = rows_of(store.spec, "run", number, 12, success=True)
    store.append(
        replace(r, driver=Driver.DEMO, action=action) if isinstance(r, Step) else r for r in rows
    )


def judged(run_dir: Path) -> None:
    """The figures that `robot-rl filter --compatible` writes; nobody has judged episode 2."""
    rows = [
        {
            "run": "run",
            "actor": "actor-0",
            "episode": number,
            "compatible": value,
            "steps": [[step, value] for step in range(12)],
        }
        for number, value in ((0, 0.92), (1, 0.35), (3, 0.11), (4, 0.88))
    ]
    (run_dir / COMPATIBLE).mkdir(exist_ok=True)
    (run_dir / COMPATIBLE / COMPATIBLE_EPISODES).write_text(json.dumps({"episodes": rows}))


def still(spec: Spec, *, torn: bool = False) -> Ensemble:
    """An ensemble that stands still and leaves the hand open, wherever it is; 0.5 away is far.

    torn: one of its networks would move, and so it is never sure.
    """
    size = sum(int(np.prod(shape)) for shape in inputs_of(spec).values())
    outputs = spec.action.motion + 3
    members = np.zeros((MEMBERS, (size + 3) * HIDDEN + (HIDDEN + 1) * outputs), np.float32)
    members[:, -1] = 50.0  # the bias of "open"
    members[0, -outputs] = 3.0 * torn
    tensors = {
        "members": members,
        "mean": np.zeros(size, np.float32),
        "scale": np.ones(size, np.float32),
    }
    return Ensemble(inputs_of(spec), (HIDDEN,), True, tensors, eta=0.1, far=0.25, usual=0.5)


def test_the_odd_ones_come_first_whoever_else_is_chosen(
    context: Any, console: Served, run_dir: Path
) -> None:
    judged(run_dir)
    page = opened(context, console)
    assert listed(page) == [4, 3, 2, 1, 0]
    assert "agrees 88 %" in page.locator("#verdict").inner_text()
    order = page.locator("[data-filter=order]")
    order.click()
    assert listed(page) == [3, 1, 4, 0, 2] and order.get_attribute("aria-pressed") == "true"
    until(lambda: page.locator("#name").inner_text() == "episode 3")
    row = page.locator("#space .entry.on button")
    assert "agrees 11 %" in row.inner_text()
    assert "agrees 11 %" in row.get_attribute("aria-label")
    assert "agrees" not in page.locator("#space .entry").last.inner_text()
    until(lambda: page.locator("#scores").inner_text() == "compatible with the base demonstrations")
    page.select_option("[data-filter=driver]", "ada")
    assert listed(page) == [1, 0, 2]
    until(lambda: "order=yes" in address(page) and "driver=ada" in address(page))
    page.reload()
    ready(page)
    assert listed(page) == [1, 0, 2] and page.input_value("[data-filter=driver]") == "ada"
    page.locator("#clear").click()
    assert listed(page) == [4, 3, 2, 1, 0]
    order.focus()
    page.keyboard.press("Enter")
    assert listed(page) == [3, 1, 4, 0, 2]
    shoot(page, "review_compatible")
    assert page.evaluate(UNNAMED) == [] and page.evaluate(CONTRAST) == []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(OVERFLOWING) == [], width
    assert page.problems == []


def test_a_run_that_nobody_has_judged_has_no_such_order(
    context: Any, console: Served, run_dir: Path
) -> None:
    page = opened(context, console)
    assert not page.locator("[data-filter=order]").is_visible()
    assert "agrees" not in page.locator("#episode").inner_text()
    judged(run_dir)  # the command may run while the page is open
    page.reload()
    ready(page)
    assert page.locator("[data-filter=order]").is_visible()
    assert page.problems == []


def test_a_bar_says_whether_who_drives_agrees_where_an_ensemble_is_kept(
    context: Any, console: Served, run_dir: Path, robot: Any
) -> None:
    page = open_page(context, console)
    bar, said = page.locator("#agreement"), page.locator("#v-agreement")
    page.wait_for_timeout(700)
    assert not bar.is_visible()
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        assert store.spec is not None
        still(store.spec).save(run_dir / COMPATIBLE)
        until(lambda: bar.is_visible() and said.inner_text() == "100 %")
        drive(store, 10, 0.3)
        until(lambda: said.inner_text() == "64 %")
        drive(store, 11, 0.9)
        until(lambda: said.inner_text() == "0 %")
        assert page.evaluate(OUTSIDE) == []
        shoot(page, "console_compatible")
        still(store.spec, torn=True).save(run_dir / COMPATIBLE)
        until(lambda: said.inner_text() == "new")
        store.append(rows_of(store.spec, "run", 12, 12, success=False))
        until(lambda: said.inner_text() == "-")  # the policy drives
    assert page.locator("#agreement label").inner_text() == "agreement"
    assert page.problems == []
