// The tabs of a run with several arms: what each does now, its hold, and one hold for all of them.
//
// A tab is a page of its own (`/?arm=NAME`): its keys, sockets and seat belong to one arm, and whoever
// goes to another tab leaves the seat here, so that no key ever moves an arm that is out of sight.

import { t, told } from "./language.js";
import { says, seat } from "./words.js";
import { at, connect, post } from "./socket.js";

const STALE_MS = 1000;

export function drawArms(bar, { arms, arm }, { doing, leave }) { // leave(): gives the seat of this page back
  const here = arm;
  bar.hidden = arms.length < 2;
  if (bar.hidden) return;
  document.body.dataset.arms = arms.length;
  bar.replaceChildren(...arms.map((name) => tab(name, name === here, doing, leave)), all(arms, doing));
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    const at_key = /^Digit([1-9])$/.exec(event.code);
    if (at_key && arms[at_key[1] - 1]) go(arms[at_key[1] - 1], here, leave);
  });
}

function tab(name, mine, doing, leave) {
  const box = document.createElement("div"), link = document.createElement("a"), hold = document.createElement("button");
  box.className = "arm";
  box.dataset.arm = name;
  link.href = at("/", name);
  if (mine) link.setAttribute("aria-current", "page");
  link.innerHTML = "<span></span> <b></b> <small></small>";
  link.querySelector("span").textContent = name;
  link.onclick = (event) => { event.preventDefault(); go(name, mine ? name : "", leave); };
  hold.type = "button";
  hold.textContent = t("Hold {name}", { name });
  hold.onclick = () => { hold.blur(); doing(post("/api/command/hold", undefined, name)); };
  box.append(link, hold);
  watch(name, box, link);
  return box;
}

function watch(name, box, link) { // every tab shows every arm: a stop must not hide behind another page
  let heard = 0;
  const draw = (word, said, driver) => {
    box.dataset.word = word;
    link.querySelector("b").textContent = said;
    link.querySelector("small").textContent = driver;
  };
  draw("OFFLINE", t("Offline"), "");
  connect(at("/ws/telemetry", name), {
    onMessage: (text) => {
      const now = JSON.parse(text), { word, lease } = now;
      heard = performance.now();
      draw(word, says(now), lease.mine || lease.holder || lease.elsewhere ? seat(lease) : "");
    },
  });
  setInterval(() => { if (performance.now() - heard > STALE_MS) draw("OFFLINE", t("Offline"), ""); }, 200);
}

function all(arms, doing) {
  const button = document.createElement("button");
  button.id = "hold-all";
  button.type = "button";
  button.title = t("Holds every arm where it is. This is not an emergency stop.");
  button.innerHTML = `<b>${t("Hold all")}</b> <kbd>Shift Esc</kbd>`;
  button.onclick = () => { button.blur(); doing(holdAll(arms)); };
  return button;
}

export async function holdAll(arms) { // each arm is told, whatever the others answer
  const said = await Promise.allSettled(arms.map((name) => post("/api/command/hold", undefined, name)));
  const failed = said.flatMap((s, i) => (s.status === "rejected" ? [`${arms[i]}: ${told(s.reason.message)}`] : []));
  if (failed.length) throw new Error(failed.join("\n"));
}

async function go(name, here, leave) {
  if (name === here) return;
  await leave();
  location.assign(at("/", name));
}
