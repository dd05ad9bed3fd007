"""The physics of a scene in Isaac Sim. robot-rl starts this program with Isaac Sim's own Python:

    $ROBOT_RL_ISAAC_PYTHON sim/isaac/worker.py FD [--window]

It needs Isaac Sim 6 and numpy, and neither robot-rl nor ROS. FD is a socket; whoever holds its
other end (`robot_rl_sim.isaac`) sends requests, each a letter and its content:

    o  JSON, see `Scene`   open a stage        -> JSON: joints, in the order of the articulation
    m  JSON, see `Scene`   joints and free bodies go elsewhere, at once
    s  float64 torques     one physics step    -> float64, see `Scene.step`
    p  JSON path, size     draw a picture      -> uint8 [height, width, 3]

An answer begins with the letter of its request, or with "!" and says what went wrong. The program
ends when the socket does. Every call of Isaac Sim's is in `manifest.json`, and a test compares.
"""

import json
import os
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

MAJOR = "6"  # of Isaac Sim: 5 has these calls in other places
CONTACTS = 256  # points of contact that are read of one step
FRAMES = 64  # that a camera may take until its first picture
BEHIND = 3  # frames by which a camera may be late: what is read then shows the scene as it is
IDLE_S = 0.05  # a window is drawn this often
ENDED = "the stage has not been opened"


class Scene:
    """A stage that has been opened.

    Args:
        app: the running `SimulationApp`.
        window: whether somebody looks.
        said: what robot-rl says of it:
            stage: path of the USD file; step_s: length of a physics step;
            arm: path of the articulation; position, velocity [joint name]: where it starts;
            damping [joint name]: of the joints, Nms/rad or Ns/m;
            coupled [2 names, or none], coupling [N/m, Ns/m]: fingers that follow each other;
            free [path]: position [3], quaternion wxyz [4], velocity [3], turning [3] in the world;
            hand [paths] and others [paths]: whose contacts with whom are measured;
            pictures: whether any will be drawn.
    """

    def __init__(self, app, window, said):
        from isaacsim.core.experimental.prims import Articulation, RigidPrim
        from isaacsim.core.experimental.utils import app as app_utils
        from isaacsim.core.experimental.utils import stage as stage_utils
        from isaacsim.core.simulation_manager import SimulationManager

        app_utils.stop(commit=True)
        opened, _ = stage_utils.open_stage(said["stage"])
        if not opened:
            raise RuntimeError(f"{said['stage']} cannot be opened")
        app.update()  # others must hear of the new stage
        while stage_utils.is_stage_loading():
            app.update()
        self._step_s, self._draws = said["step_s"], said["pictures"] or window
        SimulationManager.setup_simulation(dt=self._step_s, device="cpu")
        if self._draws:
            SimulationManager.enable_fabric(True)
        self._manager = SimulationManager
        self._arm = Articulation(said["arm"])
        self._free = [RigidPrim(path) for path in said["free"]]
        # a prim each: of several, with as many filters, Isaac Sim takes them in pairs
        self._hand = [
            RigidPrim(path, contact_filter_paths=said["others"], max_contact_count=CONTACTS)
            for path in (said["hand"] if said["others"] else ())
        ]
        self._cameras = {}
        app_utils.play(commit=True)  # loads the physics
        app_utils.pause(commit=True)  # from here on, it moves when we say so
        self.joints = list(self._arm.dof_names)
        self._undrive(said)
        self.move(said)

    def _undrive(self, said):
        """Leave no drives but what couples the fingers."""
        count, (pull, brake) = len(self.joints), said["coupling"]
        stiffness, damping = np.zeros(count), np.zeros(count)
        damping[:] = [said["damping"][name] for name in self.joints]
        self._fingers = [self.joints.index(name) for name in said["coupled"]]
        stiffness[self._fingers] += pull
        damping[self._fingers] += brake
        self._arm.set_dof_gains(stiffness[None], damping[None])

    def move(self, said):
        """Joints and free bodies go where `said` has them, with the velocities that it has."""
        self._arm.set_dof_positions(np.array([[said["position"][n] for n in self.joints]]))
        self._arm.set_dof_velocities(np.array([[said["velocity"][n] for n in self.joints]]))
        for prim, (position, quaternion, velocity, turning) in zip(
            self._free, said["free"].values(), strict=True
        ):
            prim.set_world_poses(np.array([position]), np.array([quaternion]))
            prim.set_velocities(np.array([velocity]), np.array([turning]))
        # to set a velocity also makes it the drive's goal, and the drives are the joints' damping
        self._arm.set_dof_velocity_targets(np.zeros((1, len(self.joints))))

    def settle(self):
        """One physics step with no torques: pictures show what the physics has told them."""
        self._arm.set_dof_efforts(np.zeros((1, len(self.joints))))
        self._manager.step(steps=1, update_fabric=self._draws)

    def step(self, torques):
        """One physics step with joint torques [joints].

        Returns:
            [joints] positions, [joints] velocities, [13] for each free body (position, quaternion
            wxyz, velocity of the centre of mass, turning), and [9]: force on what the hand
            touches, its torque about the world's origin, and that origin.
        """
        self._arm.set_dof_efforts(torques[None])
        if self._fingers:  # each is drawn to where the other one is
            position, velocity = self._joint_state()
            other = self._fingers[::-1]
            self._arm.set_dof_position_targets(position[None, other], dof_indices=self._fingers)
            self._arm.set_dof_velocity_targets(velocity[None, other], dof_indices=self._fingers)
        self._manager.step(steps=1, update_fabric=self._draws)
        found = [*self._joint_state()]
        for prim in self._free:
            position, quaternion = prim.get_world_poses()
            velocity, turning = prim.get_velocities()
            found += [position.numpy()[0], quaternion.numpy()[0]]
            found += [velocity.numpy()[0], turning.numpy()[0]]
        return np.concatenate([*found, self._touch()]).astype(np.float64)

    def _joint_state(self):
        position, velocity = self._arm.get_dof_positions(), self._arm.get_dof_velocities()
        return position.numpy()[0], velocity.numpy()[0]

    def _touch(self):
        """Force [3] on the others, its torque [3] about the origin, and that origin [3]."""
        found = np.zeros(9)
        for prim in self._hand:
            forces, points, normals, _, counts, starts = prim.get_contact_force_data(
                dt=self._step_s
            )
            rows = rows_of(counts.numpy(), starts.numpy())
            pressed = forces.numpy()[rows] * normals.numpy()[rows]
            add(found, pressed, points.numpy()[rows])
            forces, points, counts, starts = prim.get_friction_data(dt=self._step_s)
            rows = rows_of(counts.numpy(), starts.numpy())
            add(found, forces.numpy()[rows], points.numpy()[rows])
        return found

    def picture(self, path, size):
        """What a camera of the stage sees, uint8 [height, width, 3]. The scene stands still."""
        from isaacsim.core.experimental.utils import app as app_utils
        from isaacsim.core.rendering_manager import RenderingManager

        app_utils.enable_extension("isaacsim.sensors.experimental.rtx")
        from isaacsim.sensors.experimental.rtx import CameraSensor, RtxCamera

        if path not in self._cameras:
            eye = RtxCamera(path, reset_xform_op_properties=False)
            self._cameras[path] = CameraSensor(eye, resolution=tuple(size), annotators=["rgb"])
        camera: CameraSensor = self._cameras[path]
        for frame in range(FRAMES):
            RenderingManager.render()
            if frame < BEHIND - 1:
                continue
            picture, _ = camera.get_data("rgb")
            if picture is not None:
                return picture.numpy().astype(np.uint8)
        raise RuntimeError(f"no picture of {path} after {FRAMES} frames: is there an RTX GPU?")


def rows_of(counts, starts):
    """The rows of the buffers that hold something: of each pair, from its start on."""
    pairs = zip(starts.ravel().tolist(), counts.ravel().tolist(), strict=True)
    some = [np.arange(start, start + count) for start, count in pairs if count]
    return np.concatenate(some) if some else np.zeros(0, np.intp)


def add(found, forces, points):
    """Add forces on the hand, at points in the world, to what the hand does to the others."""
    found[:3] -= forces.sum(0)
    found[3:6] -= np.cross(points, forces).sum(0)


class Worker:
    """Answers requests.

    Args:
        app: the running `SimulationApp`.
        window: whether it has one.
    """

    def __init__(self, app, window):
        self._app, self._window, self._scene = app, window, None

    def answer(self, request):
        """The answer to a request, both bytes."""
        kind, content = request[:1], request[1:]
        try:
            return kind + self._answer(kind, content)
        except Exception as error:  # whoever asked must hear of everything
            return f"!{type(error).__name__}: {error}".encode()

    def _answer(self, kind, content):
        if kind == b"o":
            self._scene = None
            self._scene = Scene(self._app, self._window, json.loads(content))
            return json.dumps(self._scene.joints).encode()
        if self._scene is None:
            raise RuntimeError(ENDED)
        if kind == b"m":
            self._scene.move(json.loads(content))
            self._scene.settle()
            return b""
        if kind == b"s":
            return self._scene.step(np.frombuffer(content)).tobytes()
        if kind == b"p":
            return self._scene.picture(*json.loads(content)).tobytes()
        raise ValueError(f"unknown request {kind!r}")


def boot(window):
    """Start Isaac Sim; returns its `SimulationApp`. Raises `RuntimeError` for another version."""
    from isaacsim import SimulationApp  # loads what the other modules need

    app = SimulationApp({"headless": not window})
    from isaacsim.core.version import get_version

    version = get_version()
    if version[2] != MAJOR:
        raise RuntimeError(f"this is Isaac Sim {version[0]}, and robot-rl knows {MAJOR}.x")
    return app


def main():
    """Serve until the other end goes away."""
    connection, window = Connection(int(sys.argv[1])), "--window" in sys.argv
    del sys.argv[1:]  # Isaac Sim takes what is left as its own
    os.set_inheritable(connection.fileno(), False)
    try:
        app = boot(window)
    except RuntimeError as error:
        connection.send_bytes(f"!{error}".encode())
        raise
    worker, drawn_s = Worker(app, window), 0.0
    connection.send_bytes(b"h")
    from isaacsim.core.rendering_manager import RenderingManager

    try:
        while True:
            while window and (time.monotonic() - drawn_s > IDLE_S or not connection.poll(IDLE_S)):
                RenderingManager.render()
                drawn_s = time.monotonic()
            connection.send_bytes(worker.answer(connection.recv_bytes()))
    except (EOFError, OSError):
        app.close()


if __name__ == "__main__":
    main()
