// `?`: a picture of all keys, and the words of the page. It lies beside what happens: every key goes on working.

import { FIXED, asShipped, keyOf, move } from "./keymap.js";
import { others, t } from "./language.js";
import { isOffered, practise } from "./practice.js";
import { canSpeak, isOn, speak, turn } from "./speak.js";

const HOW = "Press a key in the picture to move what it does to another key.";
const ROWS = [
  ["Escape", "KeyQ", "KeyW", "KeyE", "KeyR", "KeyT", "KeyY", "KeyU", "KeyI", "KeyO", "KeyP", "Backspace"],
  ["KeyA", "KeyS", "KeyD", "KeyF", "KeyG", "KeyH", "KeyJ", "KeyK", "KeyL", "Enter"],
  ["ShiftLeft", "KeyZ", "KeyX", "KeyC", "KeyV", "KeyB", "KeyN", "KeyM", "Comma", "Period", "Space"],
];
export const CAPTIONS = { // what a key does, and which kind of key it is
  Escape: ["hold robot", "stop"], KeyY: ["acknowledge a stop", "robot"], KeyR: ["resume", "robot"], KeyF: ["ready: go", "robot"],
  KeyT: ["take, leave the seat", "page"], KeyP: ["other picture", "page"], KeyV: ["review", "page"], KeyM: ["sound", "page"],
  Comma: ["goal from above", "page"], Period: ["layout", "page"],
  Space: ["held: drive", "drive"], KeyW: ["away", "drive"], KeyS: ["towards you", "drive"], KeyA: ["left", "drive"], KeyD: ["right", "drive"],
  KeyE: ["up", "drive"], KeyQ: ["down", "drive"], KeyJ: ["turn left", "drive"], KeyL: ["turn right", "drive"], KeyI: ["tilt", "drive"],
  KeyK: ["tilt", "drive"], KeyU: ["tilt", "drive"], KeyO: ["tilt", "drive"], KeyC: ["close", "drive"], KeyG: ["open", "drive"],
  ShiftLeft: ["slow", "drive"], KeyZ: ["held: rewind", "drive"], KeyH: ["nudge: small steps", "drive"], Enter: ["success", "label"], Backspace: ["failure", "label"],
  KeyN: ["neutral", "label"], KeyX: ["exclude", "label"], KeyB: ["not a success yet", "label"],
};
export const PAD = [ // a button's name on an Xbox pad, its number in the standard mapping, and what it does
  ["RB", 5, "held: drive"], ["LB", 4, "slow"], ["LT", 6, "close"], ["RT", 7, "open"], ["Y", 3, "success"], ["A", 0, "failure"],
  ["X", 2, "abort the episode"], ["B", 1, "hold robot"],
];
const STICKS = [["left stick", "away, towards you, left, right"], ["right stick", "up, down, turn"]];
const WORDS = [ // as in docs/glossary.md
  ["seat", "the right to drive from the operator's page; one page at a time has it"],
  ["takeover, release", "the person begins to drive; the person lets go"],
  ["hold", "the robot stands where it is; a person, or the next good command, lets it go on"],
  ["protective stop", "the robot stands, and a person must acknowledge the stop before the robot moves again"],
  ["gate", "the only door to motion: judges every command"],
  ["policy", "what drives when no person does"],
  ["operator", "whoever helps: a person with a device, or the script that stands in for a person"],
  ["episode", "from a start to an ending; its purpose is train, demo, deploy, eval, or data (imported)"],
  ["step", "one control tick: frame, executed action, next frame"],
  ["label", "what a person or a model says about a step, a frame or an episode; appended, never changed"],
  ["score", "a model's number between 0 and 1: how sure the model is of success"],
  ["replay", "the steps that may be learned from; online: what this run's policy did, demo: what people drove"],
  ["staleness", "age: of weights, pictures, states, commands"],
  ["exam", "unaided episodes that decide whether practice may end"],
];

const element = (tag, name, text) => Object.assign(document.createElement(tag), { className: name, textContent: text });

let asked = null; // the picture of a key that waits for its new key

function ask(key, caption) {
  key.blur();
  asked = key;
  document.getElementById("keys-say").textContent = t("Press the new key for \"{what}\". Esc: leave it as it is.", { what: t(caption) });
  for (const other of document.querySelectorAll(".key")) other.classList.toggle("asked", other === key);
}

function answered() {
  asked = null;
  document.getElementById("keys-say").textContent = t(HOW);
  for (const key of document.querySelectorAll(".key.asked")) key.classList.remove("asked");
}

// before anything else hears the key: it must not move the arm as well. Esc still holds the robot.
function onKey(event) {
  if (!asked || !document.getElementById("help").open) return;
  const key = asked;
  answered();
  if (event.code === "Escape") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  move(key.dataset.key, event.code);
}

export function help() {
  const dialog = document.getElementById("help");
  if (dialog.open) { dialog.close(); return; }
  if (!dialog.childElementCount) build(dialog);
  dialog.show(); // not as a modal one, which would take the keys
  document.activeElement.blur();
}

function settings(...more) {
  const row = element("div", "row settings", ""), voice = element("button", "", "");
  const draw = () => { voice.textContent = t(isOn() ? "Voice on" : "Voice off"); voice.setAttribute("aria-pressed", isOn()); };
  voice.type = "button";
  voice.id = "voice";
  voice.hidden = !canSpeak();
  voice.title = t("Says aloud what waits for a person, and how an episode ended");
  voice.onclick = () => { voice.blur(); turn(!isOn()); draw(); speak(isOn() ? t("Voice on") : ""); };
  draw();
  row.append(voice, ...more, ...others());
  return row;
}

function build(dialog) {
  const close = element("button", "", `${t("Close")} ?`);
  close.type = "button";
  close.onclick = () => dialog.close();
  const keys = Object.assign(element("div", "keys", ""), { tabIndex: 0 }); // scrolled by keyboard where it is too wide
  for (const row of ROWS) {
    const line = keys.appendChild(element("div", "keyrow", ""));
    for (const code of row) {
      const [caption, kind] = CAPTIONS[code], key = line.appendChild(element("button", `key ${kind}`, ""));
      key.type = "button";
      key.dataset.key = code;
      key.disabled = FIXED.includes(code);
      key.append(element("b", "", keyOf(code)), element("span", "", t(caption)));
      key.onclick = () => ask(key, caption);
    }
  }
  const pad = element("dl", "pad", "");
  for (const [stick, means] of STICKS) pad.append(element("dt", "", t(stick)), element("dd", "", t(means)));
  for (const [name, , means] of PAD) pad.append(element("dt", "", name), element("dd", "", t(means)));
  const words = element("dl", "words", "");
  for (const [word, meaning] of WORDS) words.append(element("dt", "", t(word)), element("dd", "", t(meaning)));
  const say = Object.assign(element("p", "", t(HOW)), { id: "keys-say" });
  say.setAttribute("role", "status");
  const reset = element("button", "", t("All keys as shipped"));
  reset.type = "button";
  reset.onclick = () => { reset.blur(); asShipped(); };
  addEventListener("keydown", onKey, true);
  dialog.addEventListener("close", answered);
  const practice = element("button", "", t("Practice"));
  practice.type = "button";
  practice.id = "to-practice";
  practice.hidden = !isOffered();
  practice.title = t("Takeover and release, in two minutes");
  practice.onclick = () => { practice.blur(); dialog.close(); practise(); };
  dialog.append(close, element("h2", "", t("Keys")), keys, say, settings(reset, practice), element("h2", "", t("Gamepad")), pad, element("h2", "", t("Words")), words);
}
