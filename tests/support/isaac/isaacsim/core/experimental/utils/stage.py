"""See `isaacsim`."""

from pathlib import Path

from isaacsim import _mujoco


def open_stage(usd_path):
    """Whether it could be opened, and the stage."""
    if not Path(usd_path).is_file():
        return False, None
    _mujoco.world = _mujoco.World(usd_path)
    return True, _mujoco.world.stage


def is_stage_loading():
    """Whether files are still read."""
    return False
