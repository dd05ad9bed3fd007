"""See `isaacsim`."""

from isaacsim import _mujoco


class SimulationManager:
    """Physics."""

    @classmethod
    def setup_simulation(cls, dt=None, device=None):
        """Step size and device."""
        assert device == "cpu"
        assert dt == _mujoco.world.model.opt.timestep

    @classmethod
    def enable_fabric(cls, enable):
        """Let pictures follow the physics."""
        _mujoco.world.fabric = enable

    @classmethod
    def step(cls, *, steps=1, callback=None, update_fabric=False):
        """Go on, whether the timeline plays or not."""
        world = _mujoco.opened()
        assert not update_fabric or world.fabric
        for _ in range(steps):
            world.step()
