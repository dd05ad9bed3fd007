"""WebXR devices that are not there, as scripts for a browser: a headset, and a phone with AR.

`device` moves in the frame of the person who looks along its heading when `align`ed: forward, left,
up; it turns about the vertical, points up by `pitch` and is rolled by `roll`. A headset has a right
controller in `sources`, and a `left` one that can be put there; each is held askew of its ray.
"""

from __future__ import annotations

_DEVICE = """
class FakeSession extends EventTarget {
  constructor(device) {
    super();
    this.device = device;
    this.visibilityState = 'visible';
    this.renderState = { baseLayer: null };
    this.inputSources = device.sources;
    if (device.handheld) this.domOverlayState = { type: 'screen' };
  }
  async updateRenderState() {}
  async requestReferenceSpace() { return new EventTarget(); }
  requestAnimationFrame(call) {
    if (this.ended) return;
    window.requestAnimationFrame((now) => { if (!this.ended) call(now, {
      getPose: (space) => this.device.told(space), getViewerPose: () => this.device.told() }); });
  }
  look(state) { this.visibilityState = state; this.dispatchEvent(new Event('visibilitychange')); }
  end() { this.ended = true; this.dispatchEvent(new Event('end')); }
}
const times = ([ax, ay, az, aw], [bx, by, bz, bw]) => [
  aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx,
  aw * bz + ax * by - ay * bx + az * bw, aw * bw - ax * bx - ay * by - az * bz];
const about = (axis, angle) => {
  const turn = [0, 0, 0, Math.cos(angle / 2)];
  turn[axis] = Math.sin(angle / 2);
  return turn;
};
const AHEAD = { left_m: 0, turn: [0, 0, 0, 1] };
const controller = (handedness, buttons, left_m, grip) => ({
  handedness, gripSpace: { left_m, turn: grip }, targetRaySpace: { ...AHEAD, left_m },
  gamepad: { buttons, hapticActuators: [] } });
const buttons = () => Array.from({ length: 6 }, () => ({ pressed: false, value: 0 }));
const device = {
  heading: 0, pitch: 0, roll: 0, emulated: false, handheld: HANDHELD,
  pose: { x: 0.2, y: 1.1, z: -0.3 }, buttons: buttons(),
  told({ left_m, turn } = AHEAD) {
    if (!this.pose) return null;
    const ray = times(times(about(1, this.heading), about(0, this.pitch)), about(2, this.roll));
    const [x, y, z, w] = times(ray, turn);
    return { emulatedPosition: this.emulated, transform: { orientation: { x, y, z, w },
      position: { ...this.pose, x: this.pose.x - left_m } } };
  },
  press(i, value = 1) { this.buttons[i].pressed = value > 0.5; this.buttons[i].value = value; },
  release(i) { this.press(i, 0); },
  turn(angle) { this.heading += angle; },
  move(forward, left, up) { // along the heading that was pointed at
    const a = robotRL.yaw ?? 0, c = Math.cos(a), s = Math.sin(a);
    this.pose.z -= c * forward - s * left;
    this.pose.x -= s * forward + c * left;
    this.pose.y += up;
  },
};
const GRIP = [0.38197, -0.05640, 0.02336, 0.92216]; // of a Quest's right one; the left mirrors it
device.left = controller('left', buttons(), 0.4, [GRIP[0], -GRIP[1], -GRIP[2], GRIP[3]]);
device.sources = HANDHELD ? [] : [controller('right', device.buttons, 0, GRIP)];
globalThis.device = device;
globalThis.XRWebGLLayer = class { framebuffer = null; };
Object.defineProperty(navigator, 'xr', { value: {
  isSessionSupported: async (mode) => mode === (HANDHELD ? 'immersive-ar' : 'immersive-vr'),
  requestSession: async () => (device.session = new FakeSession(device)),
} });
"""

HEADSET = f"(() => {{ {_DEVICE.replace('HANDHELD', 'false')} }})();"
PHONE = f"(() => {{ {_DEVICE.replace('HANDHELD', 'true')} }})();"
