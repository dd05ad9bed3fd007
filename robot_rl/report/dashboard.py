"""Terminal dashboard while a run learns: a live panel on a terminal, plain lines everywhere else.

Fed by `update(stats)` with whatever figures are at hand, under the names of metrics.jsonl, plus the
words `state` ("demos", "practice", "hold" ...) and optionally `time_left_s` and `progress` (0..1),
of which follows how long practice still takes, as the studio says it (`control.work`).
What keeps the run from learning (`report.findings`) stands below in red and yellow, with the fix.
A figure that never arrives is shown as a dash; an unknown figure is ignored.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from robot_rl.control.work import Work
from robot_rl.report import findings
from robot_rl.report.svg import short

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

log = logging.getLogger(__name__)

WINDOW = 20  # episodes in "success over the last 20"
WIDEST = 1000  # characters of a curve on the widest terminal; older values are dropped
PLAIN_EVERY_S = 10.0  # a log file wants a line now and then, not four per second
BARS = "▁▂▃▄▅▆▇█"

STATE_STYLES = {
    "hold": "bold yellow",
    "protective stop": "bold red",
    "done": "bold green",
    "stopped": "bold red",
}


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _with(unit: str) -> Callable[[float], str]:
    return lambda value: f"{short(value)} {unit}"


FINDING_STYLES = {"problem": "red", "warning": "yellow"}

FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("success, last 20", "success_rate", _percent),
    ("driven by a person", "intervention_rate", _percent),
    ("updates per env step (UTD)", "learner/utd", short),
    ("gradient updates", "learner/updates_per_s", _with("/s")),
    ("age of weights", "weights/staleness_s", _with("s")),
    ("control period, p99", "loop/period_ms_p99", _with("ms")),
    ("replay online", "replay/online", short),
    ("replay demo", "replay/demo", short),
    ("env steps", "env_steps", short),
    ("episodes", "episodes", short),
    ("mean Q", "critic/q_mean", short),
    ("time left", "left_s", lambda s: f"{round(s) // 60}:{round(s) % 60:02d}"),
)
"""Label, key, format. `success_rate`, `intervention_rate`, `episodes` and `left_s` are computed
here."""

WITHOUT = "clock/without_"
WAITED = "clock/waited_"  # how the keys of `_pace` begin
CURVES = (("success", "success_rate"), ("by a person", "intervention_rate"))


def sparkline(values: list[float], width: int, high: float = 1.0) -> str:
    """The last `width` values in [0, high] as block characters."""
    top = len(BARS) - 1
    return "".join(BARS[round(top * min(max(v / high, 0.0), 1.0))] for v in values[-width:])


class Dashboard:
    """Shows a run. Use as a context manager; `update` may be called from any thread, often.

    Args:
        title: name of the experiment.
        console: where to draw; the real terminal by default.
    """

    def __init__(self, title: str, console: Console | None = None) -> None:
        from rich.console import Console

        self.title = title
        self.console = console or Console(file=sys.stderr)
        self.live = self.console.is_terminal
        self._stats: dict[str, Any] = {}
        self._episodes: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._seen = 0
        self._last_index: dict[str, Any] = {}  # of each arm
        self._work = Work()
        self._worked: dict[str, Any] = {}  # of each arm: the newest episode that it knows
        self._curves = {key: deque[float](maxlen=WIDEST) for _, key in CURVES}
        self._notes: deque[str] = deque(maxlen=4)
        self._told: set[str] = set()  # findings that are there and have been logged
        self._next_line_s = 0.0
        self._live: Any = None
        self._handler = _Notes(self._notes)
        self._silenced: list[logging.Handler] = []

    def __enter__(self) -> Self:
        """Take over the terminal; log lines move into the panel."""
        if self.live:
            from rich.live import Live

            root = logging.getLogger()
            self._silenced = [h for h in root.handlers if isinstance(h, logging.StreamHandler)]
            for handler in self._silenced:
                root.removeHandler(handler)
            root.addHandler(self._handler)
            self._live = Live(
                get_renderable=self.render, console=self.console, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture on the terminal and give the log its place back."""
        if self._live is not None:
            self._live.stop()
            root = logging.getLogger()
            root.removeHandler(self._handler)
            for handler in self._silenced:
                root.addHandler(handler)

    def update(self, stats: Mapping[str, Any]) -> None:
        """Merge new figures. A stats dict with `episode/success` counts as one practice episode.

        The same episode may be sent many times: `arm`, where there are several, and
        `episode/index` tell them apart.
        """
        self._stats.update(stats)
        self._stats["left_s"] = self._left_s(stats)
        if "episode/success" in stats:
            arm, index = stats.get("arm", ""), stats.get("episode/index")
            if index is None or index != self._last_index.get(arm):
                self._last_index[arm] = index
                self._count_episode(stats)
        if not self.live:
            self._tell()
        if not self.live and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + PLAIN_EVERY_S
            log.info("%s", self.line())

    def _left_s(self, stats: Mapping[str, Any]) -> float | None:
        """Seconds until the budget of practice is used up; while it learns before, until then."""
        if str(self._stats.get("state")).startswith("learning"):
            return self._stats.get("time_left_s")
        arm = stats.get("arm", "")
        episode = [value for key, value in stats.items() if key.endswith("episode/index")]
        if episode and episode != self._worked.get(arm):
            self._worked[arm] = episode
            self._work.add({"time_s": time.time(), **stats})
        return self._work.left_s

    def line(self) -> str:
        """The state in one line, for logs and pipes."""
        shown = [str(self._stats.get("state", "starting")) + self._judged()]
        for label, key, form in FIGURES:
            value = self._stats.get(key)
            if isinstance(value, int | float):
                shown.append(f"{label} {form(value)}")
        if pace := self._pace():
            shown.append(pace)
        return " | ".join(shown)

    def render(self) -> RenderableType:
        """The panel with the newest figures."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = str(self._stats.get("state", "starting"))
        head = Text(f" {state.upper()} ", STATE_STYLES.get(state.lower(), "bold cyan") + " reverse")
        head.append(f" {self._judged()}  {self._stats.get('detail', '')}", "default not reverse")
        if pace := self._pace():
            head.append(f"  {pace}", "default not reverse")
        table = Table.grid(padding=(0, 2), expand=True)
        for ratio in (5, 3, 5, 3):
            table.add_column(ratio=ratio, justify="left" if ratio == 5 else "right")
        cells = [cell for figure in FIGURES for cell in self._cell(*figure)]
        for i in range(0, len(cells), 4):
            table.add_row(*cells[i : i + 4])
        parts: list[RenderableType] = [head, Text(), table, Text(), *self._sparklines()]
        progress = self._stats.get("progress")
        if isinstance(progress, int | float):
            parts.append(ProgressBar(total=1.0, completed=float(progress)))
        for x in findings.current(self._stats):
            text = Text.assemble((f"{x.severity}: {x.what}", "bold"), f"\n  fix: {x.fix}")
            text.stylize(FINDING_STYLES[x.severity])
            parts.append(text)
        parts += [Text(note, "dim", no_wrap=True, overflow="ellipsis") for note in self._notes]
        return Panel(Group(*parts), title=f"robot-rl · {self.title}", border_style="dim")

    def _judged(self) -> str:
        """How far an evaluation or an exam is; nothing in practice."""
        if str(self._stats.get("state")).startswith(("demos", "practice")):
            return ""
        number, of = (self._stats.get(f"eval_episode/{key}") for key in ("number", "of"))
        if not isinstance(number, int | float):
            return ""
        return f" {number:.0f}" + (f" of {of:.0f}" if of else "")

    def _pace(self) -> str:
        """How fast a simulated clock goes, and whom it waits for most."""
        factor = self._stats.get("clock/factor")
        if not isinstance(factor, int | float):
            return ""
        waited = {
            key.removeprefix(WAITED): value
            for key, value in self._stats.items()
            if key.startswith(WAITED) and isinstance(value, int | float)
        }
        who = max(waited, key=lambda name: waited[name], default="")
        why = f", {_percent(waited[who])} waiting for the {who}" if who and waited[who] else ""
        gone = [name for name in waited if self._stats.get(WITHOUT + name)]
        why += f", no longer waits for: {', '.join(gone)}" if gone else ""
        return f"{factor:.1f} x real time{why}"

    def _cell(self, label: str, key: str, form: Callable[[float], str]) -> tuple[Any, Any]:
        from rich.text import Text

        value = self._stats.get(key)
        text = form(value) if isinstance(value, int | float) else "-"
        return Text(label, "dim"), Text(text, "bold")

    def _sparklines(self) -> list[RenderableType]:
        from rich.text import Text

        width = max(self.console.width - 22, 10)
        lines: list[RenderableType] = []
        for (label, key), style in zip(CURVES, ("green", "yellow"), strict=True):
            lines.append(Text(f"{label:<14}{sparkline(list(self._curves[key]), width)}", style))
        return lines

    def _tell(self) -> None:
        """Log each finding once when it appears, for a file or a pipe."""
        now = {x.name: x for x in findings.current(self._stats)}
        for name, x in now.items():
            if name not in self._told:
                log.warning("%s: %s; fix: %s", x.severity, x.what, x.fix)
        self._told = set(now)

    def _count_episode(self, stats: Mapping[str, Any]) -> None:
        self._seen += 1
        self._stats["episodes"] = self._seen
        if stats.get("episode/aborted"):  # it says nothing about the policy
            return
        human = float(stats.get("episode/intervention_rate", 0.0))
        self._episodes.append((float(stats["episode/success"]), human))
        for place, (_, key) in enumerate(CURVES):
            mean = sum(episode[place] for episode in self._episodes) / len(self._episodes)
            self._stats[key] = mean
            self._curves[key].append(mean)


class _Notes(logging.Handler):
    """Keeps the last log lines for the panel."""

    def __init__(self, notes: deque[str]) -> None:
        super().__init__(logging.INFO)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of a record."""
        first = record.getMessage().partition("\n")[0]
        self._notes.append(f"{time.strftime('%H:%M:%S')} {first}")
