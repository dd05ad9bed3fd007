"""WebXR devices that are not there, as scripts for a browser: a headset, and a phone with AR.

`device` moves in the frame of the person who looks along its heading when `align`ed: forward, left,
up; it turns about the vertical.
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
      getPose: () => this.device.told(), getViewerPose: () => this.device.told() }); });
  }
  look(state) { this.visibilityState = state; this.dispatchEvent(new Event('visibilitychange')); }
  end() { this.ended = true; this.dispatchEvent(new Event('end')); }
}
const device = {
  heading: 0, emulated: false, handheld: HANDHELD, pose: { x: 0.2, y: 1.1, z: -0.3 },
  buttons: Array.from({ length: 6 }, () => ({ pressed: false, value: 0 })),
  told() {
    if (!this.pose) return null;
    const half = this.heading / 2;
    return { emulatedPosition: this.emulated, transform: { position: { ...this.pose },
      orientation: { x: 0, y: Math.sin(half), z: 0, w: Math.cos(half) } } };
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
const gamepad = { buttons: device.buttons, hapticActuators: [] };
device.sources = HANDHELD ? [] : [{ handedness: 'right', gripSpace: {}, gamepad }];
globalThis.device = device;
globalThis.XRWebGLLayer = class { framebuffer = null; };
Object.defineProperty(navigator, 'xr', { value: {
  isSessionSupported: async (mode) => mode === (HANDHELD ? 'immersive-ar' : 'immersive-vr'),
  requestSession: async () => (device.session = new FakeSession(device)),
} });
"""

HEADSET = f"(() => {{ {_DEVICE.replace('HANDHELD', 'false')} }})();"
PHONE = f"(() => {{ {_DEVICE.replace('HANDHELD', 'true')} }})();"
