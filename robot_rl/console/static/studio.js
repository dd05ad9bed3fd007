// The studio: a list of runs that keeps itself up to date, and beside it the view that the address names.

import { get, secret } from "./socket.js"; // first: it keeps the page's secret out of the address
import { others, t, translate } from "./language.js";
import { $, about, bytes, duration, el, interval, number, ofAll, percent, place, spark, stateWords, successWords, title } from "./studio_parts.js";
import { showBin } from "./studio_bin.js";
import { showCompare } from "./studio_compare.js";
import { showNew } from "./studio_new.js";
import { showRun } from "./studio_run.js";

const PERIOD_MS = 2000, SOON_MS = 300;
const PRESSED_MS = 300; // a click comes this soon after a press has ended, or not at all
const LEAST = 2, MOST = 6; // runs that are compared
const page = { rows: new Map(), drawn: new Map(), names: [], version: 0, marked: new Set(), about: null, view: null, told: null, pressed: false };
globalThis.robotRL = page;

// --- the list ---------------------------------------------------------------------------------

const newest = (a, b) => (b.created || "").localeCompare(a.created || "") || b.id.localeCompare(a.id);
const isLive = (row) => stateWords(row)[0] === "live";
const order = (a, b) => isLive(b) - isLive(a) || newest(a, b);

function drawRow(row) {
  const [kind, words] = stateWords(row);
  const box = el("div", { className: `run${row.id === page.chosen ? " on" : ""}`, data: { id: row.id } });
  const mark = el("input", { type: "checkbox", checked: page.marked.has(row.id), "aria-label": t("compare {run}", { run: row.id }) });
  mark.onchange = () => { mark.checked ? page.marked.add(row.id) : page.marked.delete(row.id); drawMarks(); };
  const name = el("a", { className: "name", href: `#${new URLSearchParams({ run: row.id })}` }, el("b", {}, title(row)), el("small", {}, place(row)));
  const state = el("span", { className: `state ${kind}` }, words);
  const progress = row.progress != null && kind === "live" ? el("progress", { max: 1, value: row.progress, title: t("practice budget used"), "aria-label": t("practice budget used") }) : "";
  const left = row.left_s != null ? el("small", {}, t("about {time} left", { time: duration(row.left_s) })) : "";
  const figures = [[t("steps"), number(row.steps)], [t("person"), percent(row.human)], [t("time"), duration(row.worked_s || null)], [t("disk"), bytes(row.bytes)]];
  box.append(
    el("label", { className: "mark" }, mark),
    el("div", { className: "who" }, name, el("div", { className: "now" }, state, el("small", {}, about(row))), progress ? el("div", { className: "now" }, progress, left) : ""),
    el("div", { className: "success", title: successWords(row.success) }, el("b", {}, percent(row.success?.success)), interval(row.success),
      el("small", {}, row.success?.kind === "practice" ? t("practice") : row.success ? ofAll(row.success.successes, row.success.episodes) : "")),
    spark(row.curve, t("success of {run} over its steps", { run: row.id })),
    ...figures.map(([label, value]) => el("span", { className: "n" }, el("i", {}, label), value)),
  );
  return box;
}

function counted(n, all) {
  if (n === all) return all === 1 ? t("1 run") : t("{n} runs", { n });
  return all === 1 ? t("0 of 1 run") : t("{n} of {all} runs", { n, all });
}

function leavePressed(list) { // a row that is made anew under a press would never be clicked
  let timer = 0;
  const end = () => {
    clearTimeout(timer);
    [page.pressed, timer] = [false, 0];
    drawList();
  };
  const soon = (wait_ms) => { if (page.pressed && !timer) timer = setTimeout(end, wait_ms); };
  list.addEventListener("pointerdown", () => { clearTimeout(timer); [page.pressed, timer] = [true, 0]; });
  list.addEventListener("click", () => { if (page.pressed) setTimeout(end); }); // when it has done what it does
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => soon(PRESSED_MS));
  addEventListener("pointermove", (event) => { if (!event.buttons) soon(PRESSED_MS); }); // it ended outside the window
}

function drawList() {
  if (page.pressed) return;
  const wanted = $("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => wanted.every((word) => `${row.id} ${about(row)} ${stateWords(row)[1]} ${row.state}`.toLowerCase().includes(word));
  const known = page.names.map((id) => page.rows.get(id)).filter(Boolean), shown = known.filter(fits).sort(order);
  const boxes = shown.map((row) => {
    const before = page.drawn.get(row.id);
    if (before?.row === row && before.on === (row.id === page.chosen)) return before.box;
    const focus = before?.box.contains(document.activeElement) ? document.activeElement.tagName : "";
    const box = drawRow(row);
    page.drawn.set(row.id, { row, box, on: row.id === page.chosen });
    if (focus) requestAnimationFrame(() => box.querySelector(focus.toLowerCase())?.focus());
    return box;
  });
  const list = $("rows");
  if (boxes.length !== list.children.length || boxes.some((box, i) => list.children[i] !== box)) list.replaceChildren(...boxes);
  const live = known.filter(isLive).length, unread = page.told?.unread ?? 0;
  $("count").textContent = [counted(shown.length, known.length), live ? t("{n} at work", { n: live }) : "", unread ? t("still to be read: {n}", { n: unread }) : ""].filter(Boolean).join(", ");
  $("head").hidden = !shown.length;
  $("empty").hidden = shown.length > 0;
  $("empty").textContent = known.length ? t("No run fits the filter.") : t("There is no run in this folder yet. Start one, or give robot-rl studio the folder where your runs are.");
}

function drawMarks() {
  for (const id of page.marked) if (!page.rows.has(id)) page.marked.delete(id);
  const count = page.marked.size, fine = count >= LEAST && count <= MOST, link = $("to-compare");
  link.textContent = count ? t("Compare {n}", { n: count }) : t("Compare");
  link.setAttribute("aria-disabled", String(!fine));
  link.title = fine ? "" : t("Mark {least} to {most} runs in the list", { least: LEAST, most: MOST });
  link.href = fine ? `#${new URLSearchParams([["view", "compare"], ...[...page.marked].map((id) => ["id", id])])}` : "#view=how";
}

function drawWaiting() { // commands that begin a run and have no folder yet, or never got one
  $("waiting").replaceChildren(...page.told.waiting.map((job) => el("div", { className: `job ${job.running ? "live" : "bad"}` },
    el("b", {}, job.running ? t("{verb} is starting: {run}", job) : t("{verb} did not start: {run}", job)),
    el("pre", {}, job.log.lines.slice(job.running ? -2 : -8).map((x) => x.text).join("\n")))));
}

// --- the view beside it -----------------------------------------------------------------------

const VIEWS = { new: showNew, bin: showBin, compare: showCompare, how: showHow };

function showHow(side) {
  side.append(el("h2", {}, t("Compare runs")), el("p", {}, t("Mark {least} to {most} runs in the list, then press Compare.", { least: LEAST, most: MOST })));
}

function route() {
  const said = new URLSearchParams(location.hash.slice(1)), side = $("side");
  page.view?.close?.();
  page.chosen = said.get("run");
  const show = page.chosen ? showRun : VIEWS[said.get("view")];
  side.hidden = !show;
  document.body.dataset.view = page.chosen ? "run" : show ? said.get("view") : "list";
  side.replaceChildren();
  if (show) {
    const back = el("a", { className: "back", href: "#" }, t("← all runs"));
    side.append(back);
    side.scrollTop = 0;
    page.view = show(side, said, page) ?? {};
    if (matchMedia("(max-width: 1100px)").matches) scrollTo(0, 0);
  } else page.view = null;
  drawList();
}

// --- news -------------------------------------------------------------------------------------

async function look() {
  let wait_ms = PERIOD_MS;
  try {
    const told = await get(`/api/runs?since=${page.version}`);
    const another = page.told && told.server !== page.told.server; // whose versions are others: from the start
    page.version = another ? 0 : told.version;
    page.told = told;
    if (told.names) {
      page.names = told.names;
      for (const id of page.rows.keys()) if (!told.names.includes(id)) { page.rows.delete(id); page.drawn.delete(id); }
    }
    for (const row of told.rows) page.rows.set(row.id, row);
    $("disk").textContent = t("{size} free", { size: bytes(told.free_bytes) });
    $("lost").hidden = true;
    drawList();
    drawMarks();
    drawWaiting();
    page.view?.news?.(told.rows);
    if (told.unread || another) wait_ms = SOON_MS;
  } catch (error) {
    $("lost").hidden = false;
  }
  setTimeout(look, document.hidden ? 5 * PERIOD_MS : wait_ms);
}

async function begin() {
  try {
    page.about = await get("/api/about");
  } catch (error) {
    setTimeout(begin, PERIOD_MS);
    return;
  }
  page.mayAct = page.about.role === "operator" && secret() !== "";
  document.body.dataset.role = page.about.role;
  $("folder").textContent = page.about.folder;
  document.querySelector("nav").append(...others());
  addEventListener("hashchange", route);
  $("filter").oninput = drawList;
  leavePressed($("rows"));
  route();
  look();
}

translate(document.body);
begin();
