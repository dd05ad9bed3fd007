"""The console as one of a run's supervised processes: `python -m robot_rl.run.console RUN`.

It takes the first free port from 8080 on and leaves its link beside its sockets, where this user
alone may look, and where `robot-rl demo` and `robot-rl train` find it to print it. It ends with its
supervisor, however that died: nobody else would be left to stop it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.console.address import FIRST_PORT, HOST, free_port
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.remembered import last_port
from robot_rl.console.serve import Desk, serve
from robot_rl.link.panel import link_file
from robot_rl.run.experiment import Experiment
from robot_rl.system import priority
from robot_rl.system.files import replace_file
from robot_rl.system.supervised import orphaned, supervisor_pid
from robot_rl.tasks.common import OVERVIEW, VIEWS
from robot_rl.tasks.gym import GymTask

log = logging.getLogger(__name__)

LOOK_S = 0.2


def end_with_supervisor() -> None:
    """Send SIGTERM to this process once its supervisor is gone; without one, its parent."""
    supervisor = supervisor_pid() or os.getppid()

    def watch() -> None:
        while not orphaned(supervisor):
            time.sleep(LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def write_link(run_dir: Path, link: str) -> None:
    """Leave the link where only this user finds it; whole or not at all."""
    replace_file(link_file(run_dir), link + "\n", 0o600)


def about(experiment: Experiment) -> dict[str, Any]:
    """What a page must know once: names, cameras, rates.

    drawn: the cameras that are drawn for the person; demos: how many demonstrations are wanted;
    ruled: whether the task's own rule decides evaluations; seen: camera -> [width, height] in
    pixels of what the network sees; a page that shows a picture of that size shows what the network
    sees; simulated: whether the arm is, so that anybody may practise with it; practice: whether the
    run was started for that.
    """
    task = experiment.task
    images = task.spec.cameras
    if isinstance(task, GymTask):
        drawn: tuple[str, ...] = (OVERVIEW,) if task.is_drawn else ()
    else:
        drawn = VIEWS if experiment.is_simulated else ()
    shapes = {name: task.spec.observation[f"image/{name}"].shape for name in images}
    return {
        "task": task.name,
        "run": experiment.home.name,
        "arm": experiment.arm,
        "arms": list(experiment.actors),
        "cameras": [*images, *drawn],
        "drawn": list(drawn),
        "seen": {name: [width, height] for name, (height, width, _) in shapes.items()},
        "control_hz": task.spec.control_hz,
        "demos": experiment.own_train.demos,
        "ruled": getattr(task, "judge", "") != "person",
        "simulated": experiment.is_simulated,
        "practice": getattr(experiment.operator, "script_goes_on", False),
    }


def serve_run(
    run_dir: Path,
    host: str,
    port: int,
    started: Callable[[Any], None],
    certificate: PageCertificate | None = None,
) -> None:
    """Serve the console of a run; see `robot_rl.console.serve.serve`."""
    experiment = Experiment.load(run_dir)
    serve(
        run_dir,
        host,
        port,
        about=about(experiment),
        mirror=experiment.mirror,
        started=started,
        certificate=certificate,
        arms=desks(experiment),
    )


def desks(experiment: Experiment) -> list[Desk]:
    """A desk for each of several arms; none where there is one."""
    return [
        Desk(arm=arm.arm, run_dir=arm.run_dir, about=about(arm), mirror=arm.mirror)
        for arm in experiment.arms
        if arm.arm
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page of a run; `--tell-link` prints its link as well."""
    args = sys.argv[1:] if argv is None else argv
    run_dir = Path(args[0])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # at a signal the server ends by itself and passes it on; this exit runs the clean-up
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    priority.prefer("console")  # before its threads start
    end_with_supervisor()
    port = free_port(last_port(run_dir) or FIRST_PORT)  # open pages find it again

    def started(invite: Callable[[str], str]) -> None:
        link = f"http://{HOST}:{port}/enter?token={invite('operator')}"
        write_link(run_dir, link)
        if "--tell-link" in args:
            log.warning("the console is open (the link works once): %s", link)

    try:
        serve_run(run_dir, HOST, port, started)
    finally:
        link_file(run_dir).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
