// The card "Ready?": what must be well before the arm may move, and what a person accepts of it.

import { t } from "./language.js";
import { post } from "./socket.js";

const $ = (id) => document.getElementById(id);
const MARKS = { fail: "✕", accepted: "!", warn: "▲", ok: "✓" };
const SAID = { fail: "fails", accepted: "accepted", warn: "look at it", ok: "is well" };
const RANK = Object.keys(MARKS); // what fails comes first
const shown = { key: "", asked: "", open: false, ready: null, mine: false };

const breakable = (text) => text.replaceAll(/[/_]/g, "$&\u200b"); // names of topics are long
const made = (tag, text, name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });

// ready: null where nobody keeps a list; mine: this page has the seat; doing(work) shows an error. Returns whether the list needs the room.
export function drawReadiness(ready, mine, doing) {
  Object.assign(shown, { ready, mine, doing });
  $("readiness").hidden = !ready;
  const fails = ready?.items.some((item) => item.status === "fail") ?? false;
  document.body.dataset.ready = fails ? "no" : "yes";
  const key = JSON.stringify([ready, mine, shown.asked, shown.open]);
  if (ready && key !== shown.key) draw(ready); // ten times a second: a button that is pressed must stay where it is
  shown.key = key;
  return fails || (ready != null && shown.open);
}

const again = () => drawReadiness(shown.ready, shown.mine, shown.doing);

export function toggleReadiness() { // all items, or only those that somebody should look at
  shown.open = !shown.open;
  again();
}

function draw({ items, accept }) {
  const of = (status) => items.filter((item) => item.status === status).length;
  const held = accept.filter((name) => items.every((i) => i.name !== name || i.status !== "accepted"));
  const state = of("fail") ? "fail" : of("accepted") || held.length ? "accepted" : "ok";
  $("readiness").dataset.state = state;
  $("ready-mark").textContent = MARKS[state];
  $("ready-text").textContent = t(of("fail") ? "Not ready: the arm does not move" : "Ready");
  const parts = [[of("fail"), "to mend"], [of("accepted") + held.length, "accepted"], [of("warn"), "to look at"], [of("ok"), "well"]];
  $("ready-count").textContent = parts.filter(([n]) => n).map(([n, what]) => `${n} ${t(what)}`).join(", ");
  $("ready-line").setAttribute("aria-expanded", shown.open);
  $("ready-line").title = t(shown.open ? "Show only what needs a look" : "Show every item");
  const ranked = [...items].sort((a, b) => RANK.indexOf(a.status) - RANK.indexOf(b.status));
  const wanted = ranked.filter((i) => shown.open || i.status === "fail" || i.status === "accepted");
  $("ready-items").replaceChildren(...wanted.map(line), ...held.map(heldLine));
  $("ready-seat").hidden = shown.mine || !items.some((i) => i.status === "fail" && !i.never);
}

function line(item) {
  const row = made("li", "", item.status), words = made("div", ""), mark = made("span", MARKS[item.status], "mark-of");
  row.dataset.name = item.name;
  mark.title = t(SAID[item.status]);
  const text = item.text.startsWith(item.name) ? item.text.slice(item.name.length).replace(/^[:\s]+/, "") : item.text;
  words.append(made("b", breakable(item.name)), made("span", breakable(text), "what"));
  if (item.fix && (item.status === "fail" || item.status === "warn")) words.append(made("span", item.fix, "fix"));
  if (item.status === "fail" && item.never) words.append(made("span", t("Nobody can accept this: {why}.", { why: item.never }), "never"));
  row.append(mark, words);
  if (item.status === "accepted") row.append(takeBack(item.name));
  if (item.status === "fail" && !item.never && shown.mine) row.append(shown.asked === item.name ? question(item, text) : first(item.name));
  return row;
}

function heldLine(name) { // accepted, and well at the moment: it would pass again
  const row = made("li", "", "accepted"), words = made("div", "");
  row.dataset.name = name;
  words.append(made("b", breakable(name)), made("span", t("accepted, although it is well now"), "what"));
  row.append(made("span", MARKS.accepted, "mark-of"), words, takeBack(name));
  return row;
}

function button(text, name, press) {
  const found = Object.assign(made("button", text, name), { type: "button" });
  found.onclick = () => { found.blur(); press(); }; // no key of the driver's may press it again
  return found;
}

function ask(name) {
  shown.asked = name;
  again();
}

const first = (name) => button(t("Accept …"), "accept", () => ask(name));

function question(item, text) {
  const box = made("div", "", "question");
  const words = made("p", "");
  words.textContent = t("Accept {name}? The arm may move although: {why}", { name: breakable(item.name), why: breakable(text) });
  const buttons = made("div", "", "row");
  buttons.append(button(t("Yes, accept"), "yes", () => say(item.name, true)), button(t("No"), "no", () => ask("")));
  box.append(words, buttons);
  return box;
}

function takeBack(name) {
  const back = button(t("Take back"), "back", () => say(name, false));
  back.disabled = !shown.mine;
  return back;
}

function say(name, on) {
  ask("");
  shown.doing(post("/api/accept", { name, on }));
}
