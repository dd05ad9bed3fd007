"""`robot-rl devices`: list, watch and calibrate the gamepads and SpaceMice of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say
from robot_rl.errors import ConfigError, SetupError, did_you_mean

if TYPE_CHECKING:
    from robot_rl.operate.handset import DeviceReading, Handset
    from robot_rl_hardware.reader import FoundDevice, Reader

TEXT = """
List the gamepads and SpaceMice that are plugged into this machine, and say why one cannot be
opened. --watch shows what each stick and button does to the tool. --calibrate measures where the
sticks rest (hands off for two seconds) and saves that for every later run. No robot is moved.
"""
EXAMPLES = """
robot-rl devices
robot-rl devices --watch 20
robot-rl devices --calibrate spacemouse        part of the device's name, or its kind
"""
CALIBRATION_S, FIRST_S, PERIOD_S = 2.0, 2.0, 0.02
KINDS = {
    "gamepad": ("find_gamepads", "GamepadConfig"),
    "spacemouse": ("find_spacemice", "SpaceMouseConfig"),
}
"""Module of `robot_rl_hardware` -> (its finder, its config)."""
WIDTH = 21  # of a bar; odd, so that it has a middle


def run(argv: Sequence[str]) -> int:
    """List, watch or calibrate; return 1 when no device can be opened."""
    parser = Parser("devices", TEXT, EXAMPLES)
    parser.add_argument(
        "--watch", type=float, default=0.0, metavar="SECONDS", help="show all of them live"
    )
    parser.add_argument("--calibrate", metavar="NAME", help="measure where this one's sticks rest")
    args = parser.read(argv)
    found = _list()
    usable = [f for f in found if not f.problem]
    if args.calibrate is not None:
        _calibrate(_named(args.calibrate, found))
    elif args.watch > 0 and usable:
        _watch(usable, args.watch)
    return 0 if usable else 1


def _list() -> list[FoundDevice]:
    """Print and return the devices that are there; print why others are not."""
    found: list[FoundDevice] = []
    for kind, (finder, _) in KINDS.items():
        module = f"robot_rl_hardware.{kind}"
        try:
            some = engine(f"{module}:{finder}")()
            if not some:
                raise engine(f"{module}:none_found")()
        except SetupError as error:
            say(str(error))
            continue
        say("\n".join(f"{kind:<11} {f}" for f in some))
        found += some
    if any(f.problem for f in found):
        say("fix:        docs/devices.md has the udev rule that gives you access")
    return found


def _named(word: str, found: Sequence[FoundDevice]) -> FoundDevice:
    fits = [f for f in found if word.lower() in f.name.lower() or word in (f.kind, f.path)]
    if len(fits) == 1 and not fits[0].problem:
        return fits[0]
    raise ConfigError(
        f"cannot calibrate '{word}'",
        expected="part of the name of one device that can be opened",
        got="; ".join(map(str, fits)) or f"none of the {len(found)} found",
        fix=did_you_mean(word, [f.name for f in found]),
    )


def _open(found: FoundDevice) -> Reader:
    """Read a device in a thread. Raises `SetupError` when it cannot be opened."""
    config = engine(f"robot_rl_hardware.{found.kind}:{KINDS[found.kind][1]}")(device=found.path)
    connect = engine(f"robot_rl_hardware.{found.kind}:connect")
    return engine("robot_rl_hardware.reader:Reader")(lambda: connect(config))


def _calibrate(found: FoundDevice) -> None:
    from robot_rl.operate.calibration import AXES, calibrate, save_rest

    say(f"\n{found.name}: put it down, hands off, {CALIBRATION_S:.0f} s ...")
    reader = _open(found)
    try:
        _first(reader, found)
        samples: list[Any] = []
        _every(CALIBRATION_S, lambda: samples.append(_reading(reader, found).axes))
        rest = calibrate(samples)
        path = save_rest(reader.name, rest, reader.inputs.axes)
    finally:
        reader.close()
    for axis, centre, zone in zip(AXES, rest.centre, rest.dead_zone, strict=True):
        say(f"  {axis}  rests at {centre:+.3f}, stays within a dead zone of {zone:.3f}")
    say(f"written to {path}")


def _watch(found: Sequence[FoundDevice], seconds: float) -> None:
    """Show live bars of every device, and what keeps it from driving."""
    from rich.live import Live
    from rich.text import Text

    from robot_rl.operate.calibration import load_rest
    from robot_rl.operate.handset import Handset, HandsetConfig

    readers = [_open(f) for f in found]
    hands = [Handset(HandsetConfig(), 7, load_rest(r.name, r.inputs.axes)) for r in readers]
    try:
        with Live(auto_refresh=False) as live:

            def show() -> None:
                blocks = [picture(r.name, r.read(), h) for r, h in zip(readers, hands, strict=True)]
                live.update(Text("\n\n".join(blocks)), refresh=True)

            _every(seconds, show)
    finally:
        for reader in readers:
            reader.close()


def picture(name: str, reading: DeviceReading | None, hand: Handset) -> str:
    """One device as text: a bar per axis, the held buttons, whether it may drive or why not."""
    import numpy as np

    from robot_rl.operate.calibration import AXES

    value = hand.feed(reading, time.monotonic())
    if reading is None:
        return f"{name}: gone"
    lines = [name]
    for axis, raw in zip(AXES, np.array(reading.axes).tolist(), strict=True):
        lines.append(f"  {axis} {bar(raw)} {raw:+.2f}")
    lines.append(f"  held: {' '.join(sorted(reading.held)) or '-'}")
    lines.append(f"  {'driving' if value.driving else hand.problem or 'neutral, ready to drive'}")
    return "\n".join(lines)


def bar(value: float) -> str:
    """A value in [-1, 1] as a bar from the middle: [     |###  ]."""
    middle = WIDTH // 2
    end = middle + round(value * middle)
    low, high = min(middle, end), max(middle, end)
    cells = ("|" if i == middle else "#" if low <= i <= high else " " for i in range(WIDTH))
    return f"[{''.join(cells)}]"


def _first(reader: Reader, found: FoundDevice) -> None:
    """Wait for the first reading of a device. Raises `SetupError` when none comes."""
    give_up_s = time.monotonic() + FIRST_S
    while reader.read() is None and time.monotonic() < give_up_s:
        time.sleep(PERIOD_S)
    _reading(reader, found)


def _reading(reader: Reader, found: FoundDevice) -> DeviceReading:
    reading = reader.read()
    if reading is None:
        raise SetupError(
            f"nothing is heard of {found.name}",
            expected="readings from it",
            got="silence",
            fix="switch it on, plug it in again",
        )
    return reading


def _every(seconds: float, action: Callable[[], None]) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        action()
        time.sleep(PERIOD_S)
