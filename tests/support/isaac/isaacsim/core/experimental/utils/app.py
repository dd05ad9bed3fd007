"""See `isaacsim`."""

from isaacsim import _mujoco


def play(*, commit=True):
    """Load the physics of the stage."""
    _mujoco.world.ready = _mujoco.world.playing = True


def pause(*, commit=True):
    """Let the timeline stand."""
    _mujoco.world.playing = False


def stop(*, commit=True):
    """Unload the physics."""
    if _mujoco.world is not None:
        _mujoco.world.ready = _mujoco.world.playing = False


def enable_extension(name, *, enabled=True):
    """Whether it could be enabled."""
    return name.startswith("isaacsim.")
