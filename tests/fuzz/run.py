"""The soak: millions of inputs for every target, one process after another. `make fuzz`.

    python -m tests.fuzz.run [--inputs 10000000] [--target NAME ...] [--out runs/fuzz]

With `atheris` installed (`pip install 'robot-rl[fuzz]'`), the inputs follow the coverage of our own
Python code; what reached something new is kept in OUT/corpus, and the next soak begins there.
Without it, they are changed seeds. Inputs that break a promise are written to OUT/defects; one that
is mended belongs into `tests/fuzz/corpus` as a regression.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fuzz.measure import Defect, Watch, allowed_mb, memory_mb, quiet, reset_peak, warm
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
KILL_S = 60  # an input that takes longer, by the clock on the wall, ends the process
MOST_ENDS = 20  # of one target's process, e.g. by a crash inside a library
TOLD_EVERY = 500  # inputs between two looks at memory, and two reports
OWN = ["robot_rl", "robot_rl_hardware"]  # what coverage is counted of
MIXED = 4  # of so many inputs of the coverage-guided fuzzer, one comes from `Mutator`


def seeds_of(target: Target) -> list[bytes]:
    """The seeds of a target, those that once found something included."""
    return [path.read_bytes() for path in sorted((CORPUS / target.name).iterdir())]


# -- one process -----------------------------------------------------------------------------------


def work(name: str, count: int, seed: int, out: Path) -> None:
    """Run a target on `count` inputs in this process; report to OUT/state/NAME.json."""
    target = TARGETS[name]
    guided = importlib.util.find_spec("atheris") is not None
    shared = Path("/dev/shm")
    base = shared if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=base) as folder, quiet():
        if guided:
            import atheris  # pyright: ignore[reportMissingModuleSource]

            with atheris.instrument_imports(  # pyright: ignore[reportAttributeAccessIssue]
                include=OWN, enable_loader_override=False
            ):
                run = target.open(Path(folder))
        else:
            run = target.open(Path(folder))
        watch = Watch(target, run)
        warm(target, run, seeds_of(target))
        began_s, before_mb = time.process_time(), memory_mb("VmRSS")
        most_mb = grown_mb = 0.0
        state = out / "state" / f"{name}.json"
        done = 0

        def one(data: bytes) -> None:
            nonlocal done, before_mb, most_mb, grown_mb
            if done % TOLD_EVERY == 0:  # each time anew: code that atheris counts leaks a little
                reset_peak()
                before_mb = memory_mb("VmRSS")
            watch(data)
            done += 1
            if done % TOLD_EVERY == 0 or done == count:
                most_mb = max(most_mb, memory_mb("VmHWM"))
                grown_mb = max(grown_mb, memory_mb("VmHWM") - before_mb)
                if grown_mb > allowed_mb(target):
                    watch.defects.setdefault("memory", _memory(grown_mb, watch.slowest))
                said = {
                    "inputs": done, "cpu_s": time.process_time() - began_s, "grown_mb": grown_mb,
                    "peak_mb": most_mb, "slowest_ms": watch.slowest_s * 1e3,
                    "accepted": watch.accepted,
                    "defects": {k: [d.kind, d.what] for k, d in watch.defects.items()},
                }  # fmt: skip
                for defect in watch.defects.values():
                    path = out / "defects" / name / defect.name
                    if not path.exists():
                        path.write_bytes(defect.data)
                state.write_text(json.dumps(said))

        mutator = Mutator(seeds_of(target), seed, target.longest, target.tree, target.skip)
        if guided:
            _guided(one, mutator, target, [f"-runs={count}", f"-seed={seed}"], out)
        else:
            for _ in range(count):
                one(mutator.fresh())


def _memory(grown_mb: float, data: bytes) -> Defect:
    return Defect("memory", f"grew by {grown_mb:.0f} MB (the slowest input is kept)", data)


def _guided(one: Any, mutator: Mutator, target: Target, words: list[str], out: Path) -> None:
    import atheris

    kept = out / "corpus" / target.name
    turn = 0

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        nonlocal turn
        turn += 1
        if turn % MIXED:
            return atheris.Mutate(data, most)
        return mutator.change(data)[:most]

    words = [
        "fuzz", str(kept), str(CORPUS / target.name), *words,
        f"-max_len={target.longest}", f"-timeout={KILL_S}", "-rss_limit_mb=4096",
        f"-artifact_prefix={out / 'defects' / target.name}/",
    ]  # fmt: skip
    atheris.Setup(words, one, custom_mutator=mutate)
    atheris.Fuzz()


# -- all of them -----------------------------------------------------------------------------------


def soak(names: list[str], inputs: int, out: Path, first_seed: int) -> list[dict[str, Any]]:
    """Run the targets; returns a row of figures for each."""
    total = sum(TARGETS[name].weight for name in names)
    shares = {n: max(1000, round(inputs * TARGETS[n].weight / total)) for n in names}
    for name in names:
        for folder in ("defects", "corpus"):
            (out / folder / name).mkdir(parents=True, exist_ok=True)
    (out / "state").mkdir(exist_ok=True)
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    rows = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=sum(shares.values()))
        for name in names:
            progress.update(bar, description=name)
            before = sum(row["inputs"] for row in rows)
            rows.append(
                _one_target(
                    name, shares[name], out, first_seed,
                    lambda done, before=before: progress.update(bar, completed=before + done),
                )
            )  # fmt: skip
            (out / "figures.json").write_text(json.dumps(rows, indent=1))
            (out / "figures.md").write_text(markdown(rows))
    return rows


def _one_target(name: str, count: int, out: Path, seed: int, tell: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"target": name, "inputs": 0, "cpu_s": 0.0, "edges": 0, "peak_mb": 0.0,
                           "slowest_ms": 0.0, "grown_mb": 0.0, "accepted": 0, "defects": {},
                           "ends": []}  # fmt: skip
    state, log = out / "state" / f"{name}.json", out / "state" / f"{name}.log"
    while row["inputs"] < count and len(row["ends"]) < MOST_ENDS:
        state.unlink(missing_ok=True)
        left = count - row["inputs"]
        words = [sys.executable, "-m", "tests.fuzz.run", "--work", name, "--inputs", str(left),
                 "--seed", str(seed + len(row["ends"])), "--out", str(out)]  # fmt: skip
        with log.open("wb") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
            try:
                while process.poll() is None:
                    time.sleep(0.2)
                    tell(row["inputs"] + _said(state).get("inputs", 0))
            finally:
                process.kill()
        said, text = _said(state), log.read_text(errors="replace")
        row["inputs"] += said.get("inputs", 0)
        row["cpu_s"] += said.get("cpu_s", 0.0)
        row["accepted"] += said.get("accepted", 0)
        for key in ("peak_mb", "slowest_ms", "grown_mb"):
            row[key] = max(row[key], said.get(key, 0.0))
        row["defects"] |= said.get("defects", {})
        row["edges"] = max([row["edges"], *map(int, re.findall(r"cov: (\d+)", text))])
        if said.get("inputs", 0) < left:
            kind = "hang" if "ALARM: working on" in text else "crash"
            row["ends"].append([kind, text[-600:]])
            if not said:
                row["inputs"] += TOLD_EVERY  # it ends before its first report: go on all the same
    return row


def _said(state: Path) -> dict[str, Any]:
    try:
        return json.loads(state.read_text())
    except (OSError, ValueError):  # not there yet, or half written
        return {}


HEADS = ("target", "inputs", "per CPU s", "edges", "peak MB", "slowest ms", "crashes", "hangs")


def cells(row: dict[str, Any]) -> list[str]:
    """The figures of a target, as `HEADS` names them; edges are counted by atheris only."""
    kinds = [kind for kind, _ in row["defects"].values()] + [kind for kind, _ in row["ends"]]
    rate = row["inputs"] / max(row["cpu_s"], 1e-9)
    edges = f"{row['edges']:,}" if row["edges"] else "-"
    found = [str(len(kinds) - kinds.count("hang")), str(kinds.count("hang"))]
    figures = [f"{row['inputs']:,}", f"{rate:,.0f}", edges, f"{row['peak_mb']:.0f}"]
    return [row["target"], *figures, f"{row['slowest_ms']:.1f}", *found]


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The figures as a table."""
    table = Table(*HEADS)
    for row in rows:
        table.add_row(*cells(row))
    return table


def markdown(rows: list[dict[str, Any]]) -> str:
    """The same for docs/faults.md, with what each target reads."""
    lines = [["target", "reads", *HEADS[1:]], ["---"] * (len(HEADS) + 1)]
    for row in rows:
        name, *figures = cells(row)
        lines.append([name, f"`{TARGETS[name].reads}`", *figures])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000_000, help="of all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget what earlier soaks kept")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the target's process, too
    if args.work:
        work(args.work, args.inputs, args.seed, args.out)
        return
    if args.fresh:
        shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = soak(args.target or list(TARGETS), args.inputs, args.out, args.seed)
    console = Console(width=120)
    console.print(table_of(rows))
    bad = [(row["target"], *what) for row in rows for what in row["defects"].values()]
    bad += [
        (row["target"], kind, text.strip()[-200:]) for row in rows for kind, text in row["ends"]
    ]
    for name, kind, what in bad:
        console.print(f"{name}: {kind}: {what}", markup=False)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
