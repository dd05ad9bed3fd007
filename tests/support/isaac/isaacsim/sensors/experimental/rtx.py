"""See `isaacsim`."""

import mujoco
from isaacsim import _mujoco
from isaacsim._mujoco import Array
from pxr import UsdGeom


class RtxCamera:
    """A camera of the stage."""

    def __init__(
        self,
        path,
        *,
        tick_rate=None,
        schemas=None,
        attributes=None,
        positions=None,
        translations=None,
        orientations=None,
        scales=None,
        reset_xform_op_properties=True,
    ):
        assert _mujoco.world.stage.GetPrimAtPath(path).IsA(UsdGeom.Camera), path
        self.name = path.rpartition("camera_")[2]


class CameraSensor:
    """Draws what a camera sees, once frames have been drawn."""

    def __init__(
        self,
        path,
        *,
        resolution=None,
        annotators=None,
        annotator_init_params=None,
        writers=None,
        render_vars=None,
    ):
        assert annotators == ["rgb"]
        self._name, self._first = path.name, _mujoco.world.drawn
        self._renderer = mujoco.Renderer(_mujoco.world.model, *resolution)

    def get_data(self, annotator, *, out=None):
        """The picture [height, width, 3], or None before the third frame."""
        world = _mujoco.opened()
        if world.drawn - self._first < 3:
            return None, {}
        mujoco.mj_camlight(world.model, world.data)
        self._renderer.update_scene(world.data, camera=self._name)
        return Array(self._renderer.render()), {}
