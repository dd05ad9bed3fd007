"""See `isaacsim`."""

from isaacsim import _mujoco


class RenderingManager:
    """Frames."""

    @classmethod
    def render(cls):
        """Draw a frame; nothing moves."""
        if _mujoco.world is not None:
            _mujoco.world.drawn += 1
