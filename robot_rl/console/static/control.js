// Keys, gamepad and touch, sent as state at 50 Hz and at once when something changes.
//
// The page says which keys are held and where the sticks are. The robot side decides what that means:
// dead zones, neutral check, time-outs. A page that goes away simply stops sending.

import { meaning } from "./keymap.js";
import { told } from "./language.js";
import { at, connect, post } from "./socket.js";
import { toast } from "./toast.js";

const PERIOD_MS = 20;

// axes: tx ty tz rx ry rz of the tool, pointing down: forward, right, down are positive, as seen in the large picture
export const KEYS = {
  Space: { held: "drive", say: ["Space"], means: "hold to drive" },
  KeyW: { axis: [0, 1], say: ["KeyW", "KeyS"], means: "away, towards you" }, KeyS: { axis: [0, -1] },
  KeyA: { axis: [1, -1], say: ["KeyA", "KeyD"], means: "left, right" }, KeyD: { axis: [1, 1] },
  KeyE: { axis: [2, -1], say: ["KeyE", "KeyQ"], means: "up, down" }, KeyQ: { axis: [2, 1] },
  KeyJ: { axis: [5, -1], say: ["KeyJ", "KeyL"], means: "turn" }, KeyL: { axis: [5, 1] },
  KeyI: { axis: [4, 1], say: ["KeyI", "KeyK", "KeyU", "KeyO"], means: "tilt" }, KeyK: { axis: [4, -1] },
  KeyU: { axis: [3, -1] }, KeyO: { axis: [3, 1] },
  KeyC: { held: "close", say: ["KeyC", "KeyG"], means: "gripper close, open" }, KeyG: { held: "open" },
  ShiftLeft: { held: "slow", say: ["ShiftLeft"], means: "slow" }, ShiftRight: { held: "slow" },
  KeyZ: { held: "rewind", say: ["KeyZ"], means: "rewind" },
};
export const PAD_BUTTONS = { 5: "drive", 4: "slow", 6: "close", 7: "open", 3: "success", 0: "failure", 2: "redo", 1: "hold" };
const PAD_AXES = [[1, 0, -1], [0, 1, 1], [3, 2, 1], [2, 5, 1]]; // stick, axis, sign

export class Control {
  constructor({ onHeard, onPad, seen = () => null, touch }) {
    this.seen = seen; // in which picture axes are meant
    this.touch = touch;
    touch.changed = () => this.send();
    this.down = new Map(); // key of the keyboard -> what it meant when it was pressed
    this.pulses = new Map(); // word -> until when it is sent
    this.heard = false;
    this.nudge = false; // a press is one small step
    this.pad = null;
    this.line = connect(at("/ws/control"), {
      asks: true,
      onMessage: (data) => { this.heard = data === "1"; onHeard(this.heard); },
      onClose: () => { this.heard = false; onHeard(false); },
    });
    this.onPad = onPad;
    addEventListener("keydown", (e) => this.key(e, true));
    addEventListener("keyup", (e) => this.key(e, false));
    addEventListener("blur", () => this.letGo());
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.letGo(); });
    addEventListener("pagehide", () => this.letGo());
    setInterval(() => { if (!document.hidden) this.send(); }, PERIOD_MS); // a hidden page is not in the seat
  }

  key(event, down) {
    if (event.code.startsWith("Meta")) this.down.clear(); // a Mac tells of no key that is let go beside it
    const code = meaning(event.code), typed = event.target.closest("input, textarea, select");
    if (!down) { // a key that was held is let go everywhere, whatever is held beside it and whatever it means by now
      if (code in KEYS && !typed) event.preventDefault(); // Space must not press a focused button
      this.down.delete(event.code);
    } else {
      if (!(code in KEYS) || typed || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      if (event.repeat) return;
      this.down.set(event.code, code);
    }
    this.send();
  }

  pulse(word) { // a short press, long enough to be read
    this.pulses.set(word, performance.now() + 150);
    this.send();
  }

  letGo() {
    const drove = this.last?.held.some((word) => word === "drive" || word === "rewind") || this.touch.wasCut();
    this.down.clear();
    this.pulses.clear();
    this.touch.letGo();
    this.away = true; // the pad may still be held while nobody looks
    this.send();
    this.away = false;
    if (drove) post("/api/command/hold?left=yes").catch((error) => toast(told(error.message)));
  }

  now() {
    const axes = [0, 0, 0, 0, 0, 0], held = new Set();
    for (const code of this.down.values()) {
      const key = KEYS[code];
      if (key.held) held.add(key.held);
      if (key.axis) axes[key.axis[0]] += key.axis[1];
    }
    for (const [word, until] of this.pulses) {
      if (performance.now() < until) held.add(word); else this.pulses.delete(word);
    }
    this.touch.read(axes, held);
    if (!this.away && !document.hidden) this.readPad(axes, held);
    return { axes: axes.map((v) => Math.max(-1, Math.min(1, v))), held: [...held] };
  }

  readPad(axes, held) {
    const pad = [...(navigator.getGamepads?.() ?? [])].find((p) => p?.connected) ?? null;
    if ((pad?.id ?? null) !== this.pad) { this.pad = pad?.id ?? null; this.onPad(this.pad); }
    if (!pad) return;
    for (const [stick, axis, sign] of PAD_AXES) axes[axis] += sign * (pad.axes[stick] ?? 0);
    for (const [index, word] of Object.entries(PAD_BUTTONS)) if (pad.buttons[index]?.pressed) held.add(word);
  }

  send() {
    const said = this.now();
    this.last = said;
    const seen = this.seen();
    this.line.send(JSON.stringify({ ...said, ...(seen && { seen }), ...(this.nudge && { nudge: true }), at: Math.round(performance.now()) }));
  }
}
