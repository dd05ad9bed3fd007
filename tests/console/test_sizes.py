"""HOLD and the word of state can be reached on every screen, at every zoom, in every state."""

from __future__ import annotations

from typing import Any

from tests.console.test_page import page
from tests.support.served import until

__all__ = ["page"]  # a fixture

SCREENS = (
    (360, 640),
    (390, 844),
    (768, 1024),
    (1280, 800),
    (1920, 1080),
    (2560, 1440),
)
ZOOMS = (0.5, 1.0, 2.0)  # a browser that zooms gives the page a smaller window
LONG = "force: 61.3 N between the tool and the fixture, more than 50 N; the controller has stopped"
STATES: dict[str, dict[str, Any]] = {
    "POLICY": {},
    "HOLD": {"gate": {"mode": "hold", "reason": "person: hold", "waits": "person"}},
    "PROTECTIVE STOP": {"gate": {"mode": "protective_stop", "reason": LONG, "waits": "device"}},
    "RESET?": {"asks": "place the peg in the fixture, its flat side to the wall\n" * 3},
}
REACHED = """
() => {
  const found = [], root = document.documentElement;
  const box = (x) => x.getBoundingClientRect();
  const state = document.getElementById("state"), hold = document.getElementById("hold");
  const word = document.getElementById("word");
  for (const [item, owner] of [[hold, hold], [word, state]]) {
    const r = box(item), at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
    const inside = Math.min(r.x, r.y, innerWidth - r.right, innerHeight - r.bottom) > -2;
    if (!inside) found.push(`${item.id} is outside: ${JSON.stringify(r)}`);
    if (!owner.contains(at)) found.push(`${item.id} is under ${at?.id || at?.tagName}`);
  }
  if (box(hold).width < 60 || box(hold).height < 44) found.push("hold is small");
  const cut = hold.scrollWidth > hold.clientWidth || hold.scrollHeight > hold.clientHeight;
  if (cut) found.push("hold's words are cut off");
  if (word.scrollWidth > box(state).width) found.push("the word is cut off");
  if (root.scrollWidth > innerWidth) found.push(`the page is ${root.scrollWidth} wide`);
  const all = [...document.querySelectorAll("header > *")];
  const shown = all.filter((x) => x.offsetParent && x !== hold);
  for (const a of shown) for (const b of shown) {
    const p = box(a), q = box(b);
    const across = p.left < q.right - 1 && q.left < p.right - 1;
    const over = across && p.top < q.bottom - 1 && q.top < p.bottom - 1;
    if (a !== b && over && !scrollY) found.push(`${a.id} lies over ${b.id}`);
  }
  return found;
}
"""


def windows() -> list[tuple[int, int]]:
    """The windows that a page gets, upright and across, at every zoom."""
    turned = [*SCREENS, *((high, wide) for wide, high in SCREENS[:3])]
    zoomed = {(round(w / zoom), round(h / zoom)) for w, h in turned for zoom in ZOOMS}
    return sorted(zoomed)


def test_hold_and_the_word_can_be_reached_on_every_screen(page: Any, robot: Any) -> None:
    found, usual = {}, robot.view
    for shown, change in STATES.items():
        robot.view = usual | change
        until(lambda want=shown: page.evaluate("document.body.dataset.word") == want)
        for wide, high in windows():
            page.set_viewport_size({"width": wide, "height": high})
            for place in ("0", "document.documentElement.scrollHeight"):
                page.evaluate(f"scrollTo(0, {place})")
                if problems := page.evaluate(REACHED):
                    found[f"{shown}, {wide}x{high} at {place[:3]}"] = problems
    assert found == {}
