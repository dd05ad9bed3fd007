// A headset's controller or a phone as the hand that the tool follows (WebXR), over the control socket.
//
// The page only says where the device is and what is held; the robot side decides what that means. Whatever
// ends the pose (tracking lost, headset taken off, page hidden) ends the messages: silence lets go.

import { t, told, translate } from "./language.js";
import { says } from "./words.js";
import { at, connect, post } from "./socket.js";
import { toast } from "./toast.js";

const $ = (id) => document.getElementById(id);
const SEND_MS = 15; // frames come at 60 to 120 Hz; the robot side looks at 50
const STEEP = Math.sin(Math.PI / 3); // beyond 60 degrees up or down nobody knows where forward is
const SQUEEZE = 1, TRIGGER = 0, FORWARD = [4], HOLD = [5], STICK = 3; // xr-standard mapping; the stick aligns, too
const COLOURS = { driving: [0.06, 0.45, 0.2, 1], ready: [0.1, 0.2, 0.5, 1], wait: [0.5, 0.1, 0.1, 1] };

const xr = { session: null, space: null, yaw: null, heard: false, answered: 0, told: 0, mine: false, problem: "", word: "OFFLINE", says: "Offline",
  steep: false, source: undefined, opened: false, touching: false, closed: false, sent: 0, drove: false, last: null };
const doing = (work) => work.catch((error) => toast(told(error.message)));

const line = connect(at("/ws/control"), {
  asks: true,
  onMessage: (data) => { xr.heard = data === "1"; xr.answered = performance.now(); },
  onClose: () => { xr.heard = false; },
});
const ANSWER_MS = 300, TOLD_MS = 1000; // a line that has fallen silent may not say so for minutes

connect(at("/ws/telemetry"), { onMessage: (text) => {
  const now = JSON.parse(text);
  xr.told = performance.now();
  Object.assign(xr, { mine: now.lease.mine, problem: now.robot.device_problem ?? "", word: now.word });
  document.body.dataset.word = now.word;
  xr.says = $("word").textContent = says(now);
  $("reason").textContent = told(now.reason);
  $("seat-button").textContent = xr.mine ? t("Leave the seat") : t("Take the seat");
  $("xr-go").hidden = !now.robot.gate?.waits || now.word === "PROTECTIVE STOP";
  $("xr-ready").hidden = now.word !== "RESET?";
  draw();
} });

function watch() { // an old word must not stay, here or in the headset
  if (xr.word === "OFFLINE" || performance.now() - xr.told < TOLD_MS) return;
  Object.assign(xr, { mine: false, problem: "", word: "OFFLINE" });
  document.body.dataset.word = xr.word;
  xr.says = $("word").textContent = t("Offline");
  $("reason").textContent = t("the console does not answer");
  $("xr-go").hidden = $("xr-ready").hidden = true;
  draw();
}

function draw() {
  const text = !xr.mine ? t("Take the seat first.")
    : !xr.session ? xr.mode ? t("Ready to start.") : xr.why
    : xr.steep ? t("It pointed too steeply up or down to tell where forward is: point it level, and press again.")
    : xr.yaw === null ? t("Point the device forward (the robot's x axis) and press A or X, or: I point forward.")
    : told(xr.problem) || t("Hold the grip button, or keep a finger on: hold to drive.");
  $("say").textContent = text;
  $("overlay-say").textContent = `${xr.says}: ${text}`;
  $("enter").disabled = !xr.mine || !xr.mode || Boolean(xr.session);
}

// WebXR has y up and looks along -z; the robot's base has z up and x forward
const position = (p) => [-p.z, -p.x, p.y];
const turned = (q) => [-q.z, -q.x, q.y, q.w];
const times = ([ax, ay, az, aw], [bx, by, bz, bw]) => [
  aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx,
  aw * bz + ax * by - ay * bx + az * bw, aw * bw - ax * bx - ay * by - az * bz];

function heading(q) { // of the -z axis about the vertical, in the robot's sense; null: it is too steep to have one
  const [x, y, z, w] = turned(q);
  return Math.abs(2 * (x * z - w * y)) > STEEP ? null : Math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z));
}

function hand(transform) { // x y z qx qy qz qw, with the direction that was pointed at as x
  const [x, y, z] = position(transform.position), c = Math.cos(xr.yaw), s = Math.sin(xr.yaw);
  const back = [0, 0, -Math.sin(xr.yaw / 2), Math.cos(xr.yaw / 2)];
  return [c * x + s * y, c * y - s * x, z, ...times(back, turned(transform.orientation))];
}

function read(frame) { // the pose and the buttons, or null: nobody knows where the device is
  const sources = [...xr.session.inputSources];
  const held = sources.filter((s) => s.gripSpace && s.gamepad);
  const source = held.find((s) => s.handedness === "right") ?? held[0];
  const pose = source ? frame.getPose(source.gripSpace, xr.space) : xr.handheld ? frame.getViewerPose(xr.space) : null;
  if (!pose || pose.emulatedPosition) return null;
  const buttons = source?.gamepad.buttons ?? [];
  const on = (indices) => indices.some((i) => buttons[i]?.pressed);
  return { transform: pose.transform, source, drive: source ? on([SQUEEZE]) : xr.touching,
    trigger: source ? buttons[TRIGGER]?.value ?? 0 : Number(xr.closed), forward: on([...FORWARD, STICK]), hold: on(HOLD) };
}

function align(frame, { source, transform }) { // by the ray: a grip stands askew of it, in each hand another way
  const points = source ? frame.getPose(source.targetRaySpace, xr.space)?.transform : transform;
  if (!points) return;
  xr.yaw = heading(points.orientation);
  xr.steep = xr.yaw === null;
}

function say(found) {
  const held = [];
  if (found.drive && xr.opened && xr.yaw !== null) held.push("drive");
  if (found.hold) held.push("hold");
  const said = { axes: [0, 0, 0, 0, 0, 0], held, trigger: Math.min(1, Math.max(0, found.trigger)) };
  if (xr.yaw !== null) said.hand = hand(found.transform);
  xr.last = said;
  line.send(JSON.stringify({ ...said, at: Math.round(performance.now()) }));
  return held.includes("drive");
}

function onFrame(now, frame) {
  xr.session.requestAnimationFrame(onFrame);
  const found = xr.session.visibilityState === "visible" ? read(frame) : null;
  if (found && found.source !== xr.source) { // another hand, elsewhere: it drives after it was seen open
    lost();
    Object.assign(xr, { source: found.source, opened: false });
  }
  if (found && !found.drive) xr.opened = true;
  paint(found);
  if (!found) { lost(); return; }
  if ((found.forward || xr.align) && !found.drive) align(frame, found); // never while it drives
  xr.align = false;
  if (now - xr.sent < SEND_MS) return;
  xr.sent = now;
  const drives = say(found);
  if (drives !== xr.drove) found.source?.gamepad.hapticActuators?.[0]?.pulse?.(0.5, 60);
  xr.drove = drives;
}

function lost() { // say nothing more; if the person drove, hold at once
  if (xr.drove) post("/api/command/hold?left=yes").catch((error) => toast(told(error.message)));
  xr.drove = false;
}

function paint(found) { // in a headset this colour is all that one sees of the page
  const heard = xr.heard && performance.now() - xr.answered < ANSWER_MS;
  xr.shows = !found || !heard || !xr.mine || xr.problem || xr.yaw === null ? "wait" : xr.drove ? "driving" : "ready";
  const gl = xr.gl, layer = xr.session.renderState.baseLayer;
  if (!gl || !layer) return;
  gl.bindFramebuffer(gl.FRAMEBUFFER, layer.framebuffer);
  const [r, g, b, a] = COLOURS[xr.shows];
  gl.clearColor(r, g, b, xr.mode === "immersive-ar" ? 0 : a); // the room stays visible in AR
  gl.clear(gl.COLOR_BUFFER_BIT);
}

async function start() {
  const session = await navigator.xr.requestSession(xr.mode, {
    optionalFeatures: ["local-floor", "dom-overlay"], domOverlay: { root: $("overlay") },
  });
  session.addEventListener("end", () => { lost(); Object.assign(xr, { session: null, yaw: null, touching: false }); $("overlay").hidden = true; draw(); });
  session.addEventListener("visibilitychange", () => { if (session.visibilityState !== "visible") lost(); });
  xr.gl = document.createElement("canvas").getContext("webgl", { xrCompatible: true });
  if (xr.gl) await session.updateRenderState({ baseLayer: new XRWebGLLayer(session, xr.gl) });
  xr.space = await session.requestReferenceSpace("local-floor").catch(() => session.requestReferenceSpace("local"));
  xr.space.addEventListener?.("reset", () => { Object.assign(xr, { yaw: null, steep: false }); lost(); draw(); }); // the headset has moved its origin
  xr.handheld = Boolean(session.domOverlayState);
  $("overlay").hidden = !xr.handheld;
  Object.assign(xr, { session, yaw: null, steep: false, source: undefined, opened: false, closed: false });
  draw();
  session.requestAnimationFrame(onFrame);
}

async function look() {
  translate(document.body);
  xr.why = !isSecureContext ? t("The browser does not trust this page: WebXR needs HTTPS. Open /trust.")
    : !navigator.xr ? t("This browser has no WebXR. Use a headset's browser, or Chrome on an Android phone.")
    : t("No headset, and no phone with AR, was found by this browser.");
  for (const mode of navigator.xr && isSecureContext ? ["immersive-ar", "immersive-vr"] : []) {
    if (!xr.mode && await navigator.xr.isSessionSupported(mode).catch(() => false)) xr.mode = mode;
  }
  draw();
}

$("seat-button").onclick = () => doing(post(`/api/lease/${xr.mine ? "release" : "claim"}`));
$("enter").onclick = () => doing(start());
for (const id of ["xr-hold", "overlay-hold"]) $(id).onclick = () => doing(post("/api/command/hold"));
$("xr-go").onclick = () => doing(post("/api/command/go"));
$("xr-ready").onclick = () => doing(post("/api/command/ready"));
$("grip").onclick = () => { xr.closed = !xr.closed; };
$("forward").onclick = () => { xr.align = true; };
$("drive").onpointerdown = () => { xr.touching = true; };
for (const end of ["onpointerup", "onpointercancel", "onpointerleave"]) $("drive")[end] = () => { xr.touching = false; };
addEventListener("pagehide", lost);
setInterval(watch, 200);
globalThis.robotRL = xr; // for tests and the curious
look();
