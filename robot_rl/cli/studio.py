"""`robot-rl studio`: one page over a folder of runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine
from robot_rl.cli.console import lasting_page_options, link_teller, place_of
from robot_rl.errors import ConfigError

TEXT = """
Serve one page over a folder of runs: what they have come to, live, and beside each other. Begin a
run from an experiment, finish it, evaluate it, let it work, export it, open its own page, put it
away and take it back. Every button shows the command line that it runs; what was started goes on
when the page, this program or the terminal is closed, and is found again at the next start.

The page is served to this machine only, with a link that works once; press Enter for another link,
or "o" and Enter for a link that only lets a person look. With --tls it is served over HTTPS, at a
name of this machine that the certificate is for: a phone or another computer of the same network
may then open it, and the pages of runs that it opens. The certificate is made once, by
`robot-rl keys FOLDER --page`.
"""
EXAMPLES = """
robot-rl studio                                    the runs of ./runs
robot-rl studio /data/runs --no-browser
robot-rl studio --config-dir my_configs            your own experiments are in the form, too
robot-rl studio --port 8088 --forget               let no page in that was opened before
robot-rl studio --tls ~/.config/robot-rl/page --host robot-pc.local    for a phone in the network
ssh -L 8080:127.0.0.1:8080 robot-pc                from another machine; then open the link there
"""


def run(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C is pressed.

    Raises:
        ConfigError: FOLDER is a run, or no folder; the address is not this machine's own, or the
            certificate is not for it.
        SetupError: the port is taken, or the console extra is not installed.
    """
    parser = Parser("studio", TEXT, EXAMPLES)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("runs"), metavar="FOLDER",
        help="folder of runs (default: runs)",
    )  # fmt: skip
    lasting_page_options(parser)
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="your YAML files")
    args = parser.read(argv)
    folder = _folder(args.folder)
    port, certificate = place_of(args, folder)
    serve = engine("robot_rl.studio.app:serve_studio")
    started = link_teller(args, port, f"studio of {folder}", certificate=certificate)
    serve(folder, args.host, port, started, config_dir=args.config_dir, certificate=certificate)
    return 0


def _folder(folder: Path) -> Path:
    """The folder of runs, which is made if it is not there.

    Raises:
        ConfigError: it is a run itself, or a file.
    """
    if folder.is_file() or (folder / "config.yaml").is_file():
        raise ConfigError(
            f"'{folder}' is not a folder of runs",
            expected="the folder above your runs, e.g. runs",
            got="one run" if folder.is_dir() else "a file",
            fix=f"robot-rl studio {shlex.quote(str(folder.parent.parent))}; or robot-rl console "
            + shlex.quote(str(folder)),
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
