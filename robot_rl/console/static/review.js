// The review page: a list of episodes; one's cameras are scrubbed together; keys append labels.

import { language, number, t, told, translate } from "./language.js";
import { OUTCOMES, outcome, said } from "./outcome.js";
import { makeBatch } from "./review_batch.js";
import { makeExports } from "./review_export.js";
import { address, leftOut, looked, makeFilters } from "./review_filters.js";
import { makeMap } from "./review_map.js";
import { makePlayer } from "./review_play.js";
import { makePlots } from "./review_plots.js";
import { first } from "./review_read.js";
import { columns, drawLegend, drawScoreLegend, drawTrack } from "./review_timeline.js";
import { at, get, post } from "./socket.js";
import { toast } from "./toast.js";

const $ = (id) => document.getElementById(id);
// shown: what the filters leave of the list; at: the row chosen there; episode: the one on the page, which `data` is of
const page = { about: null, list: [], shown: [], at: 0, episode: null, data: null, step: 0, telling: 0 };
let filters, batch, plots, player, map; // the parts of the page, each in a module of its own
const ROW_PX = 34, EXTRA_ROWS = 12;
const ADDRESS_MS = 400; // browsers forbid many changes of the address at once

const key = (e) => ({ run: e.run, actor: e.actor, episode: e.episode });
const query = (e) => new URLSearchParams(key(e)).toString();
const counted = (n) => (n === 1 ? t("1 step") : t("{n} steps", { n }));
const agrees = (e) => (e.compatible == null ? "" : t("agrees {n} %", { n: Math.round(100 * e.compatible) }));
const same = (a, b) => a.run === b.run && a.actor === b.actor && a.episode === b.episode;

// --- the list: only what is on screen is in the document ----------------------------------------

function drawList() {
  page.shown = filters.of(page.list);
  $("count").textContent = t("{shown} of {all} episodes", { shown: page.shown.length, all: page.list.length });
  const box = $("list");
  box.innerHTML = `<div id="space"></div>`;
  $("space").style.height = `${page.shown.length * ROW_PX}px`;
  drawRows();
  batch.filtered();
  map.draw();
}

function drawRows() {
  const box = $("list"), space = $("space"), inside = box.contains(document.activeElement) && document.activeElement.type;
  const first = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - EXTRA_ROWS);
  const last = Math.min(page.shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW_PX) + EXTRA_ROWS);
  space.replaceChildren(...page.shown.slice(first, last).map((e, i) => row(e, first + i)));
  if (inside) space.querySelector(`.on ${inside === "checkbox" ? "input" : "button"}`)?.focus({ preventScroll: true });
}

function row(e, index) {
  const line = document.createElement("div"), box = document.createElement("input"), button = document.createElement("button");
  const word = outcome(e), [mark, words] = OUTCOMES[word], here = index === page.at;
  line.className = `entry${here ? " on" : ""}${leftOut(e) ? " out" : ""}`;
  line.style.transform = `translateY(${index * ROW_PX}px)`;
  box.type = "checkbox";
  box.checked = batch.has(e);
  box.setAttribute("aria-label", t("choose episode {n}", { n: e.episode }));
  box.onclick = (event) => batch.choose(index, box.checked, event.shiftKey);
  button.type = "button";
  button.className = `episode${here ? " on" : ""}`;
  box.tabIndex = button.tabIndex = here ? 0 : -1; // up and down lead to the others
  if (here) button.setAttribute("aria-current", "true");
  const cells = [mark, e.episode, t(e.purpose), counted(e.steps), [agrees(e), e.human_steps ? t("{n} human-driven", { n: e.human_steps }) : ""].filter(Boolean).join(", ")];
  button.append(...cells.map((text, column) => {
    const cell = document.createElement(column ? "span" : "b");
    if (!column) [cell.className, cell.title] = [`mark m${said(e)}`, t(words)];
    cell.textContent = text;
    return cell;
  }));
  button.setAttribute("aria-label", [t("episode {n}", { n: e.episode }), t(words), ...cells.slice(2)].filter(Boolean).join(", "));
  button.onclick = (event) => (event.shiftKey ? batch.choose(index, true, true) : open(index));
  line.append(box, button);
  return line;
}

async function load(e) { // steps, labels and scores of an episode; updates its row in the list, too
  const data = await get(`/api/episode?${query(e)}`);
  [e.review, e.voices, e.authors, e.ending] = [data.review, data.voices, data.authors, data.ending];
  return data;
}

async function relist(groups) { // after something was said about several
  drawRows();
  if (!groups.length) return;
  const now = await get("/api/episodes");
  const known = new Map(page.list.map((e) => [query(e), e]));
  for (const e of now) Object.assign(known.get(query(e)) ?? {}, e);
  filters.offerAll(page.list);
  drawRows();
  map.draw();
  const e = page.episode, about = e && groups.some(({ run, actor, episodes }) => run === e.run && actor === e.actor && episodes.includes(e.episode));
  if (!about) return;
  const data = await load(e);
  if (page.episode === e) redraw(data);
}

// --- one episode --------------------------------------------------------------------------------

async function open(index) {
  if (!page.shown.length) return;
  page.at = Math.max(0, Math.min(index, page.shown.length - 1));
  const e = page.shown[page.at], top = page.at * ROW_PX, box = $("list");
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX - box.clientHeight;
  drawRows();
  player.stop();
  const data = await load(e).catch((error) => toast(error.message));
  if (page.shown[page.at] !== e) return; // another has been chosen meanwhile
  if (!data) { // the keys stay with the episode on the page, and so does the mark in the list
    page.at = page.shown.indexOf(page.episode);
    drawRows();
    return;
  }
  [page.episode, page.data] = [e, data];
  $("frames").replaceChildren(...page.data.cameras.map((name) => {
    const figure = document.createElement("figure");
    figure.innerHTML = `<img alt=""><figcaption></figcaption>`;
    figure.querySelector("figcaption").textContent = name;
    figure.dataset.camera = name;
    return figure;
  }));
  if (!page.data.cameras.length) $("frames").innerHTML = `<p class="none">${t("This run recorded no pictures.")}</p>`;
  $("scrub").max = page.data.steps.length;
  $("scrub").style.margin = `2px 0 0 calc(${50 / columns(data)}% - 8px)`; // its thumb, 16 px wide, stands at the cursor
  $("scrub").style.width = `calc(${100 - 100 / columns(data)}% + 16px)`;
  drawVerdict();
  drawScoreLegend($("scores"), data);
  drawLegend($("colours"), data);
  drawTrack($("track"), data);
  goto(0);
  map.ring();
  clearTimeout(page.telling);
  page.telling = setTimeout(tellAddress, ADDRESS_MS);
  await plots.load(e, data);
}

function redraw(data) { // the same episode, after something was said about it
  page.data = data;
  drawVerdict();
  drawTrack($("track"), data);
}

function drawVerdict() {
  const e = page.episode, r = page.data.review;
  $("name").textContent = t("episode {n}", { n: e.episode });
  const parts = [`${t(e.purpose)}, ${counted(e.steps)}`, told(e.ending ?? "running"),
    r.neutral ? t("neutral: counts as failed, kept out until labelled") : r.excluded ? t("excluded") : said(e) == null ? t("no label: counts as failed, kept out until labelled") : said(e) ? t("success") : t("failure")];
  if (r.first || r.last != null) parts.push(t("keeps steps {first} to {last}", { first: r.first, last: r.last ?? e.steps - 1 }));
  if (page.data.inferred) parts.push(t("{n} actions inferred from what they led to", { n: page.data.inferred }));
  if (agrees(e)) parts.push(agrees(e));
  $("verdict").textContent = parts.join(" · ");
  const voices = Object.entries(e.voices).map(([who, success]) => `${who}: ${success ? t("success") : t("failure")}`);
  $("voices").textContent = voices.length > 1 ? [...voices, ...(looked(e) ? [] : [t("nobody has looked")])].join("; ") : "";
  $("words").replaceChildren(...atOnce(page.data.labels).reverse().map(([x, ...more]) => {
    const item = document.createElement("li");
    const when = moment(new Date(x.stamp_ns / 1e6));
    const steps = x.step == null ? "" : more.length ? ` ${t("steps {first} to {last}", { first: x.step, last: more.at(-1).step })}` : ` ${t("step {n}", { n: x.step })}`;
    const value = x.kind === "undo" ? ` ${t("of number {n}", { n: x.value })}` : ["neutral", "keep_from", "keep_to"].includes(x.kind) ? "" : ` ${x.value}`;
    item.textContent = `${when} ${x.author}: ${told(x.kind)}${value}${steps} (${t("number {n}", { n: x.label })})`;
    return item;
  }));
}

function moment(when) { // of another day with its date
  const today = when.toDateString() === new Date().toDateString();
  return when.toLocaleString(language, { timeStyle: "medium", ...(today ? {} : { dateStyle: "medium" }) });
}

function atOnce(labels) { // one press may be many labels, one for each step
  const groups = new Map();
  for (const x of labels) {
    const said = x.kind === "shows" ? `${x.author} ${x.stamp_ns}` : `${x.author} number ${x.label}`;
    groups.set(said, [...(groups.get(said) ?? []), x]);
  }
  return [...groups.values()];
}

function goto(step) {
  const e = page.episode, steps = page.data.steps;
  page.step = Math.max(0, Math.min(step, steps.length));
  $("scrub").value = page.step;
  for (const figure of $("frames").querySelectorAll("figure")) {
    figure.querySelector("img").src = at(`/api/frame/${figure.dataset.camera}/${page.step}?${query(e)}`);
  }
  const s = steps[Math.min(page.step, steps.length - 1)];
  $("step").textContent = s ? [t("step {n} of {all}", { n: page.step, all: steps.length }), told(s.driver), `${told(s.outcome)}${s.reason ? `: ${told(s.reason)}` : ""}`, t("reward {value}", { value: s.reward ?? t("without a label") }), t("action {values}", { values: s.action.map((a) => number(a, 2)).join("  ") })].join(" · ") : "";
  $("cursor").style.left = `${(100 * (page.step + 0.5)) / columns(page.data)}%`;
  plots.show(page.step);
}

function moveTo(step) { // as a person wants it; playing goes on from there
  goto(step);
  player.moved();
}

function drag(stack) { // a press on timeline or plots moves the cursor
  const to = (event) => {
    const { left, width } = stack.getBoundingClientRect();
    moveTo(Math.floor(((event.clientX - left) / width) * columns(page.data)));
  };
  stack.onpointerdown = (event) => {
    if (!page.data || event.button || event.target.closest("button")) return;
    event.preventDefault();
    stack.setPointerCapture(event.pointerId);
    to(event);
  };
  stack.onpointermove = (event) => { if (stack.hasPointerCapture(event.pointerId)) to(event); };
}

// --- what the person says -----------------------------------------------------------------------

const shownStep = () => Math.min(page.step, page.data.steps.length - 1);
const stepBefore = () => { // the picture is what this step led to
  if (!page.step) throw new Error(t("no step has led to the first picture"));
  return page.step - 1;
};
const SAY = {
  success: () => ({ kind: "success", value: 1 }), failure: () => ({ kind: "success", value: 0 }),
  neutral: () => ({ kind: "neutral" }),
  exclude: () => ({ kind: "exclude", value: leftOut(page.data) ? 0 : 1 }),
  keep_from: () => ({ kind: "keep_from", step: shownStep() }),
  keep_to: () => ({ kind: "keep_to", step: shownStep() }),
  shows: () => ({ kind: "shows", value: 1, step: stepBefore() }),
  shows_not: () => ({ kind: "shows", value: 0, step: stepBefore() }),
  undo: (data) => {
    const mine = data.labels.filter((x) => x.author === page.about.author);
    const undone = new Set(mine.filter((x) => x.kind === "undo").map((x) => x.value));
    const words = atOnce(mine.filter((x) => x.kind !== "undo"));
    const last = words.filter((said) => !said.some((x) => undone.has(x.label))).at(-1);
    if (!last) throw new Error(t("nothing of yours to take back"));
    return { kind: "undo", value: last[0].label };
  },
};

async function say(word) {
  const { episode: e, data: seen } = page; // what the person sees, whatever is being loaded
  try {
    if (word === "undo") page.about = await get("/api/about"); // who is at this page by now
    await post("/api/label", { ...key(e), ...SAY[word](seen) });
    const data = await load(e);
    if (page.episode === e) redraw(data);
    drawRows();
    map.draw();
  } catch (error) { toast(error.message); }
}

// --- keys and the address -----------------------------------------------------------------------

const ACTIONS = {
  ArrowRight: () => moveTo(page.step + 1), ArrowLeft: () => moveTo(page.step - 1), ArrowDown: () => open(page.at + 1), ArrowUp: () => open(page.at - 1),
  Home: () => moveTo(0), End: () => moveTo(page.data.steps.length), Space: () => player.toggle(), Comma: () => player.slower(), Period: () => player.faster(),
  Enter: () => say("success"), Backspace: () => say("failure"), KeyN: () => say("neutral"), KeyX: () => say("exclude"),
  KeyS: () => say("shows"), KeyB: () => say("shows_not"), "[": () => say("keep_from"), "]": () => say("keep_to"), KeyU: () => say("undo"),
  KeyM: () => page.shown[page.at] && batch.choose(page.at, !batch.has(page.shown[page.at]), false), "/": () => document.querySelector("[data-filter=number]").focus(),
};

function isTaken(event) { // by what has the focus: a field takes all keys, a button those that press it
  const own = event.target.closest?.("input:not([type=range]), select, button, a, summary");
  if (!own) return false;
  const pressed = own.matches("button, a, summary, [type=checkbox]");
  return pressed ? ["Space", "Enter"].includes(event.code) : true;
}

function press(event) {
  if (isTaken(event)) {
    if (event.code === "Escape") event.target.blur();
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    event.preventDefault();
    batch.undo();
    return;
  }
  const printed = ["[", "]", "/"].includes(event.key), code = printed ? event.key : event.code; // not in one place on all keyboards
  const plain = !event.metaKey && (printed ? event.altKey || !event.ctrlKey : !event.altKey && !event.ctrlKey); // Alt Gr may be Ctrl and Alt
  if (!(code in ACTIONS) || !plain || !page.data) return;
  event.preventDefault();
  ACTIONS[code]();
}

function leaveKeys() { // what was clicked does not keep the keys of the page; what Tab reached does
  let pointed = false;
  const letGo = (what) => document.activeElement?.matches(what) && document.activeElement.blur();
  addEventListener("pointerdown", () => { pointed = true; }, true);
  addEventListener("keydown", () => { pointed = false; }, true);
  addEventListener("click", (event) => { if (event.detail) letGo("button, summary, [type=checkbox]"); });
  addEventListener("change", () => { if (pointed) letGo("select"); });
}

function asked() { // #run=...&actor=...&episode=...: the episode that a link names
  const wanted = Object.fromEntries(address());
  const found = page.shown.findIndex((e) => same(wanted, { ...key(e), episode: String(e.episode) }));
  return Math.max(found, 0);
}

function tellAddress() { // filters and episode, so that a link leads to what is on the page
  const words = new URLSearchParams();
  filters.write(words);
  if (page.episode) for (const [name, value] of Object.entries(key(page.episode))) words.set(name, value);
  history.replaceState(null, "", `${location.pathname}${location.search}#${words}`);
}

async function start() {
  translate(document.body);
  try {
    [page.about, page.list] = await first;
  } catch (error) { toast(error.message); return; }
  const failed = (error) => toast(error.message);
  filters = makeFilters($("filters"), () => { drawList(); tellAddress(); open(0); });
  filters.offerAll(page.list);
  filters.read();
  batch = makeBatch($("batch"), { shown: () => page.shown, changed: relist });
  plots = makePlots($("plots"), $("add-plot"), { get, query, task: page.about.task, failed });
  player = makePlayer($("play"), $("speed"), {
    at: () => page.step, last: () => page.data?.steps.length ?? 0, hz: () => page.data.control_hz || 10, goto,
    isShown: () => [...$("frames").querySelectorAll("img")].every((image) => image.complete),
  });
  map = makeMap($("map"), {
    get, key, shown: () => page.shown, current: () => page.episode, open: (e) => open(page.shown.indexOf(e)), failed,
  });
  $("console").href = at("/");
  makeExports($("exports"), { query, current: () => page.episode });
  drawList();
  $("list").onscroll = drawRows;
  $("scrub").oninput = () => moveTo(Number($("scrub").value));
  drag($("stack"));
  $("add-plot").onchange = ({ target }) => { if (target.value) plots.choose([...plots.chosen(), target.value], page.episode); };
  $("plots").onclick = ({ target }) => {
    const name = target.closest("[data-remove]")?.dataset.remove;
    if (name) plots.choose(plots.chosen().filter((other) => other !== name), page.episode);
  };
  addEventListener("keydown", press);
  leaveKeys();
  addEventListener("resize", () => { drawRows(); if (page.data) { drawTrack($("track"), page.data); plots.redraw(); } });
  addEventListener("hashchange", () => { filters.read(); drawList(); open(asked()); });
  document.querySelectorAll("[data-say]").forEach((b) => { b.onclick = () => say(b.dataset.say); });
  await open(asked());
  globalThis.robotRL = page;
}
start();
