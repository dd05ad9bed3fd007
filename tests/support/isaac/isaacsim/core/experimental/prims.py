"""See `isaacsim`."""

import mujoco
import numpy as np
from isaacsim import _mujoco
from isaacsim._mujoco import Array, opened, rows
from pxr import UsdPhysics

from robot_rl_sim.usd import usd_name


class Articulation:
    """All joints of the arm."""

    def __init__(
        self,
        paths,
        *,
        resolve_paths=True,
        positions=None,
        translations=None,
        orientations=None,
        scales=None,
        reset_xform_op_properties=False,
    ):
        prim = _mujoco.world.stage.GetPrimAtPath(paths)
        assert prim.HasAPI(UsdPhysics.ArticulationRootAPI), paths

    @property
    def dof_names(self):
        """Names of the joints, in the articulation's order."""
        return [usd_name(joint.name) for joint in opened().joints]

    def _set(self, held, values, dof_indices=None):
        places = range(len(held)) if dof_indices is None else dof_indices
        held[list(places)] = rows(values, 1, len(places))[0]

    def get_dof_positions(self, *, indices=None, dof_indices=None):
        """[1, joints]."""
        return Array(opened().data.qpos[opened().qpos].astype(np.float32)[None])

    def get_dof_velocities(self, *, indices=None, dof_indices=None):
        """[1, joints]."""
        return Array(opened().data.qvel[opened().dofs].astype(np.float32)[None])

    def set_dof_positions(self, positions, *, indices=None, dof_indices=None):
        """Teleport; the drives' goals, too."""
        world = opened()
        self._set(world.goal, positions, dof_indices)
        world.data.qpos[world.qpos] = world.goal

    def set_dof_velocities(self, velocities, *, indices=None, dof_indices=None):
        """Set them; the drives' goals, too."""
        world = opened()
        self._set(world.pace, velocities, dof_indices)
        world.data.qvel[world.dofs] = world.pace

    def set_dof_efforts(self, efforts, *, indices=None, dof_indices=None):
        """For the next step."""
        self._set(opened().effort, efforts, dof_indices)

    def set_dof_position_targets(self, positions, *, indices=None, dof_indices=None):
        """Goals of the drives."""
        self._set(opened().goal, positions, dof_indices)

    def set_dof_velocity_targets(self, velocities, *, indices=None, dof_indices=None):
        """Velocities that the drives' dampers go with."""
        self._set(opened().pace, velocities, dof_indices)

    def set_dof_gains(
        self,
        stiffnesses=None,
        dampings=None,
        *,
        indices=None,
        dof_indices=None,
        update_default_gains=True,
    ):
        """Of the drives, per radian or metre."""
        self._set(opened().stiffness, stiffnesses, dof_indices)
        self._set(opened().damping, dampings, dof_indices)


class RigidPrim:
    """One body."""

    def __init__(
        self,
        paths,
        *,
        resolve_paths=True,
        positions=None,
        translations=None,
        orientations=None,
        scales=None,
        reset_xform_op_properties=False,
        masses=None,
        densities=None,
        contact_filter_paths=None,
        max_contact_count=0,
    ):
        prim = _mujoco.world.stage.GetPrimAtPath(paths)
        assert prim.HasAPI(UsdPhysics.RigidBodyAPI), paths
        self._body = _mujoco.world.bodies[paths]
        self._others = list(contact_filter_paths or ())
        self._most = max_contact_count

    def get_world_poses(self, *, indices=None):
        """Positions [1, 3] and quaternions wxyz [1, 4]."""
        data = opened().data
        return Array(data.xpos[self._body][None]), Array(data.xquat[self._body][None])

    def set_world_poses(self, positions=None, orientations=None, *, indices=None):
        """Teleport a free body."""
        world = opened()
        begin = world.model.jnt_qposadr[world.model.body_jntadr[self._body]]
        world.data.qpos[begin : begin + 3] = rows(positions, 1, 3)[0]
        world.data.qpos[begin + 3 : begin + 7] = rows(orientations, 1, 4)[0]
        mujoco.mj_kinematics(world.model, world.data)
        mujoco.mj_comPos(world.model, world.data)

    def get_velocities(self, *, indices=None):
        """Of the centre of mass [1, 3], and turning [1, 3], in the world."""
        world, found = opened(), np.zeros(6)
        kind = mujoco.mjtObj.mjOBJ_BODY
        mujoco.mj_objectVelocity(world.model, world.data, kind, self._body, found, 0)
        return Array(found[None, 3:]), Array(found[None, :3])

    def set_velocities(self, linear_velocities=None, angular_velocities=None, *, indices=None):
        """The same."""
        world = opened()
        rotation = world.data.xmat[self._body].reshape(3, 3)
        turning = rows(angular_velocities, 1, 3)[0]
        dof = world.model.jnt_dofadr[world.model.body_jntadr[self._body]]
        arm = rotation @ world.model.body_ipos[self._body]
        moving = rows(linear_velocities, 1, 3)[0] - np.cross(turning, arm)
        world.data.qvel[dof : dof + 6] = *moving, *(rotation.T @ turning)

    def get_contact_force_data(self, *, indices=None, dt=1.0):
        """Forces, points, normals, distances, counts and starts for each filter."""
        found, counts = self._contacts()
        assert dt == opened().model.opt.timestep, "impulses, not forces"
        force, point, normal = np.zeros((3, self._most, 3))
        for row, (where, pressed, _) in enumerate(found):
            size = np.linalg.norm(pressed)
            force[row], point[row], normal[row] = size, where, pressed / max(size, 1e-12)
        gap = np.zeros((self._most, 1))
        return *map(Array, (force[:, :1], point, normal, gap)), *self._places(counts)

    def get_friction_data(self, *, indices=None, dt=1.0):
        """Forces, points, counts and starts for each filter."""
        found, counts = self._contacts()
        force, point = np.zeros((2, self._most, 3))
        for row, (where, _, rubbed) in enumerate(found):
            force[row], point[row] = rubbed, where
        return Array(force), Array(point), *self._places(counts)

    def _places(self, counts):
        starts = np.cumsum([0, *counts[:-1]])
        return Array(np.array([counts], np.int32)), Array(np.array([starts], np.int32))

    def _contacts(self):
        """(point, pressed, rubbed) on this body, in the order of the filters, and their counts."""
        world = opened()
        model, data, by_filter = world.model, world.data, {path: [] for path in self._others}
        for number, contact in enumerate(data.contact):
            bodies = model.geom_bodyid[contact.geom]
            if self._body not in bodies:
                continue
            sign = 1.0 if bodies[1] == self._body else -1.0  # its x axis points to the second
            other = int(bodies[0] if sign > 0 else bodies[1])
            path = self._path(other, int(contact.geom[0 if sign > 0 else 1]))
            if path not in by_filter:
                continue
            wrench = np.zeros(6)
            mujoco.mj_contactForce(model, data, number, wrench)
            frame = contact.frame.reshape(3, 3)
            pressed, rubbed = sign * wrench[0] * frame[0], sign * wrench[1:3] @ frame[1:]
            by_filter[path].append((contact.pos.copy(), pressed, rubbed))
        return [row for rows in by_filter.values() for row in rows], [*map(len, by_filter.values())]

    @staticmethod
    def _path(body, geom):
        world = opened()
        names = {number: path for path, number in world.bodies.items()}
        return names.get(body) or f"/World/room/{world.model.geom(geom).name}"
