// Which key does what: every key but Esc can be moved, and this browser remembers it. Keys go by their place on the
// keyboard (`event.code`); what is printed on them is asked of the browser, where it tells.

const KEPT = "keys";
const NAMES = { Escape: "Esc", ShiftLeft: "Shift", ShiftRight: "Shift", ControlLeft: "Ctrl", ControlRight: "Ctrl", ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Comma: ",", Period: "." };
export const FIXED = ["Escape"];

let moved = {}; // what a key means as shipped -> where it is now
try {
  for (const [from, to] of Object.entries(JSON.parse(localStorage.getItem(KEPT) ?? "{}"))) if (typeof to === "string") moved[from] = to;
} catch { /* somebody has edited it */ }
let printed = new Map();

const place = (meant) => moved[meant] ?? meant;

// what a pressed key means, as the code that means it as shipped; "" for nothing
export function meaning(code) {
  const taken = Object.entries(moved).find(([, to]) => to === code);
  return taken ? taken[0] : code in moved ? "" : code;
}

export function keyOf(meant) { // what is printed on the key
  const code = place(meant);
  return NAMES[code] ?? printed.get(code)?.toUpperCase() ?? code.replace(/^(Key|Digit)/, "");
}

export const kbd = (meant) => `<kbd data-key="${meant}">${keyOf(meant)}</kbd>`;

export function drawKeys() {
  for (const item of document.querySelectorAll("kbd[data-key], .key[data-key] b")) item.textContent = keyOf(item.dataset.key ?? item.parentElement.dataset.key);
}

// move what `meant` means to another key; whatever was there comes where this was
export function move(meant, code) {
  if (FIXED.includes(meant) || FIXED.includes(code)) return false;
  const before = place(meant), other = meaning(code);
  moved[meant] = code;
  if (other && other !== meant) moved[other] = before;
  keep();
  return true;
}

export function asShipped() {
  moved = {};
  keep();
}

function keep() {
  for (const [from, to] of Object.entries(moved)) if (from === to) delete moved[from];
  localStorage.setItem(KEPT, JSON.stringify(moved));
  drawKeys();
}

navigator.keyboard?.getLayoutMap?.().then((map) => { printed = map; drawKeys(); }, () => {});
