"""How fast the review page is with many episodes in the store.

    review(1000)["review/open_ms_max"]

Real: store, server process, browser, page. Made up: the episodes, of noise, 30 steps each with two
64x64 cameras; every second one has a person's label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robot_rl.bench.console.browser import SIZE, Server, browser, quantiles, run_folder, until
from robot_rl.bench.samples import episode_rows
from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Label

STEPS = 30
OPENS = 5  # times the page is opened
SCRUBBED = 4  # episodes scrubbed through
REVIEW = """
(() => {  // when the list stands, and how long a key takes until its pictures stand
  const bench = globalThis.bench = { opened: null, shown: [], asked: null };
  const drawn = (then) => requestAnimationFrame(() => setTimeout(() => then(performance.now())));
  new MutationObserver((_, me) => {
    if (!document.querySelector("#list .episode")) return;
    me.disconnect();
    drawn((at) => { bench.opened = at; });
  }).observe(document, { subtree: true, childList: true });
  addEventListener("keydown", (e) => { bench.asked = e.timeStamp; bench.pictures = 0; }, true);
  document.addEventListener("load", (e) => {
    if (e.target.tagName !== "IMG" || bench.asked === null) return;
    if (++bench.pictures < document.querySelectorAll("#frames img").length) return;
    const asked = bench.asked;
    bench.asked = null;
    drawn((at) => { bench.shown.push(at - asked); });
  }, true);
})();
"""


def review(episodes: int) -> dict[str, float]:
    """The review page of a run with that many episodes of 30 steps and two 64x64 cameras.

    open_ms: navigation to the list on screen, first and worst of some; step_ms: arrow key until all
    pictures of the next step are shown; episode_ms: the same for the first pictures of the next
    episode, which the server reads from the store.

    Raises:
        SetupError, RobotRLError: see `video`.
    """
    opened_ms: list[float] = []
    with run_folder() as run_dir:
        fill(run_dir, episodes)
        with Server(run_dir) as server, browser() as running:
            context = running.new_context(viewport=SIZE)
            entering = context.new_page()
            entering.goto(server.link)
            entering.close()  # the console's own page would compete
            page = context.new_page()
            page.add_init_script(REVIEW)
            for _ in range(OPENS):
                page.goto(f"{server.url}/review")
                opened_ms.append(until(lambda: page.evaluate("bench.opened"), "the list stands"))
                until(lambda: page.evaluate("!!globalThis.robotRL"), "an episode stands")
            steps_ms, episodes_ms = _scrub(page, min(SCRUBBED, episodes - 1))
    return {
        "review/episodes": float(episodes),
        "review/open_ms_first": opened_ms[0],
        "review/open_ms_max": max(opened_ms),
        **quantiles("review/step_ms", steps_ms, 50, 95),
        **quantiles("review/episode_ms", episodes_ms, 50, 95),
    }


def fill(run_dir: Path, episodes: int) -> None:
    """Record made-up episodes; a person has labelled every second one."""
    spec = Experiment.load(run_dir).spec
    with Store(run_dir / ACTOR_STORE, spec=spec, reserve_bytes=0) as store:
        for i in range(episodes):
            id_ = EpisodeId("run", "actor-0", i)
            rows = episode_rows(spec, id_, STEPS)
            said = Label(id_, 0, None, "success", float(i % 3 > 0), "person", "operator 1", i)
            store.append([*rows, said] if i % 2 else rows)


def _scrub(page: Any, episodes: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each step and of each change of episode."""

    def press(key: str) -> float:
        count = page.evaluate("bench.shown.length")
        page.keyboard.press(key)
        until(lambda: page.evaluate("bench.shown.length") > count, "the pictures stand")
        return page.evaluate("bench.shown.at(-1)")

    steps_ms, episodes_ms = [], []
    for _ in range(episodes):
        episodes_ms.append(press("ArrowDown"))
        steps_ms += [press("ArrowRight") for _ in range(STEPS)]
    return steps_ms, episodes_ms
