// Practice: a card that teaches takeover and release. A step is done when the robot side says so, never because a key
// was pressed. Only where the arm is simulated.

import { keyOf } from "./keymap.js";
import { number, t } from "./language.js";

const $ = (id) => document.getElementById(id);
const FAR_MM = 30; // how far the tool has to be moved
const MOST_S = 0.5; // between two messages; of a longer gap nobody knows what happened in it
const NEXT = "robot-rl train experiment=peg_insert runtime=ros operator=console";

const mine = (now) => now.word === "HUMAN" && now.lease.mine;
const free = (now) => now.word === "SCRIPT" || now.word === "POLICY" || now.word === "HOLD" && now.robot.gate?.mode === "run"; // in a demonstration nobody drives on
const released = (now) => free(now) && !now.robot.device_problem; // keys that are held across a reset do not drive
const held = (now) => now.robot.gate?.waits === "person" && now.word === "HOLD";

// name, what to do, its keys, whether it is done; `timed`: a takeover, timed while it is possible
const STEPS = [
  ["Seat", "Take the seat: one person drives, everybody else watches.", ["KeyT"], (now) => now.lease.mine],
  ["Takeover", "Take over: hold the drive key, and keep it held. The word on top becomes: You are driving.", ["Space"], mine, "timed"],
  ["Move", "Keep it held, and move the tool by a few centimetres.", ["KeyW", "KeyA", "KeyS", "KeyD"], () => going.moved_mm > FAR_MM],
  ["Release", "Let go of everything: the robot drives on by itself.", [], released],
  ["Takeover", "The robot moves. Take over again, as soon as you can.", ["Space"], mine, "timed"],
  ["Release", "And let go. That is a correction: short, and then the robot goes on.", [], released],
  ["Hold", "Hold the robot where it is. It works in every state, also while you type.", ["Escape"], held],
  ["Resume", "Nothing moves until somebody says so. Look that everybody is clear, and resume.", ["KeyR"], (now) => now.robot.gate?.mode && !now.robot.gate.waits],
  ["Label", "Say how an episode went, success or failure. From the seat that also ends it.", ["Enter", "Backspace"], (now, said) => said !== going.said && ["success", "failure"].includes(said?.word)],
];

const TOUCHED = { KeyT: "Take the seat", Space: "Hold to drive", KeyW: "move", Escape: "Hold robot", KeyR: "Everybody is clear: resume", Enter: "Success", Backspace: "Failure" };

const going = { offered: false, step: 0 };
const clock = (ms) => `${Math.floor(ms / 60000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, "0")}`;
const made = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

export const isOffered = () => going.offered;

// about: what the server says of the run; whoever may only watch cannot practise
export function offerPractice(about) {
  going.offered = about.simulated && about.role === "operator";
  $("practice-again").onclick = () => { $("practice-again").blur(); practise(); };
  $("practice-close").onclick = () => { $("practice-close").blur(); $("practice").hidden = true; };
  if (going.offered && about.practice) practise();
}

export function practise() {
  Object.assign(going, { step: 0, began_ms: performance.now(), ended_ms: 0, took_s: [], could_s: 0, moved_mm: 0, said: undefined, heard_ms: 0 });
  $("practice").hidden = false;
  draw();
}

// now: a message of telemetry; said: the newest label that the server has taken from this page
export function drawPractice(now, said) {
  if ($("practice").hidden || going.ended_ms) return;
  const at = performance.now(), [, , , isDone, timed] = STEPS[going.step];
  const gap_s = (at - going.heard_ms) / 1000, past_s = gap_s < MOST_S ? gap_s : 0;
  going.heard_ms = at;
  if (mine(now)) going.moved_mm += (now.robot.speed_mm_s ?? 0) * past_s;
  if (free(now) || mine(now)) going.could_s += past_s; // in a reset nobody can take over
  if (isDone(now, said)) {
    if (timed) going.took_s.push(going.could_s);
    Object.assign(going, { step: going.step + 1, could_s: 0, moved_mm: 0, said });
    if (going.step === STEPS.length) going.ended_ms = at;
    draw();
  }
  $("practice-time").textContent = clock((going.ended_ms || at) - going.began_ms);
}

function draw() {
  const { step, began_ms, ended_ms, took_s } = going;
  $("practice-time").textContent = clock((ended_ms || performance.now()) - began_ms);
  $("practice-steps").replaceChildren(...STEPS.map(([name], i) => {
    const item = made("li", `${i < step ? "✓" : i + 1} ${t(name)}`, { className: i < step ? "done" : "" });
    if (i === step) item.setAttribute("aria-current", "step");
    return item;
  }));
  $("practice-next").hidden = !ended_ms;
  if (ended_ms) {
    const times = took_s.map((s) => `${number(s, 1)} s`).join(", ");
    $("practice-now").textContent = t("Done in {time}. Your takeovers took you {times}.", { time: clock(ended_ms - began_ms), times });
    $("practice-next").replaceChildren(made("span", t("Next, let a robot learn from you; ? shows every key.")), made("code", NEXT));
    return;
  }
  const [, say, keys] = STEPS[step];
  $("practice-now").replaceChildren(t(say), ...keys.flatMap((code) => [" ", symbol(code)]));
}

function symbol(code) { // the key; at a touch screen what stands on the page for it
  if (matchMedia("(pointer: coarse)").matches) return code in TOUCHED ? made("b", t(TOUCHED[code])) : "";
  const key = made("kbd", keyOf(code));
  key.dataset.key = code; // a key that is moved is named anew
  return key;
}
