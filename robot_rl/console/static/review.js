// The review page: a list of episodes; one's cameras are scrubbed together; keys append labels.

import { at, post } from "./socket.js";
import { toast } from "./toast.js";

const $ = (id) => document.getElementById(id);
const COLOURS = { policy: "#0b6bcb", correction: "#d9631a", recovery: "#7d57cf", demo: "#1f7a3d", reset: "#888" };
// shown: what the filter leaves of the list; at: the row chosen there; episode: the one on the page, which `data` is of
const page = { about: null, list: [], shown: [], at: 0, episode: null, data: null, step: 0, filter: "all", playing: null };
const ROW_PX = 34, EXTRA_ROWS = 12;
const TRACK_PX = 92, SCORES_PX = 64; // drivers, actions, reward; below them the scores of models, if there are any
const SCORE_COLOURS = ["#2f86e0", "#e0702a", "#8f6ee0", "#0d9aa3", "#d4528f", "#b58a1a"];
const PREDICATE = "predicate"; // the task's own rule: dashed

const key = (e) => ({ run: e.run, actor: e.actor, episode: e.episode });
const query = (e) => new URLSearchParams(key(e)).toString();
const said = (e) => (e.review.neutral ? null : e.review.success ?? e.success);
const leftOut = (e) => e.review.excluded && !e.review.neutral;
const looked = (e) => e.review.success != null || e.review.excluded; // neutral episodes are excluded, so they count as looked at
const counted = (steps) => `${steps} step${steps === 1 ? "" : "s"}`;
const differ = (e) => new Set(Object.values(e.voices)).size > 1;
const disagree = (e) => (looked(e) ? e.review.success != null && e.success != null && e.review.success !== e.success : differ(e));
const FILTERS = {
  all: () => true, unlabelled: (e) => said(e) == null, disagree, human: (e) => e.human_steps > 0, excluded: leftOut,
};

async function get(path) {
  const answer = await fetch(at(path)), data = await answer.json();
  if (!answer.ok) throw new Error(data.error ?? data.detail);
  return data;
}

// --- the list: only what is on screen is in the document ----------------------------------------

function drawList() {
  page.shown = page.list.filter(FILTERS[page.filter]);
  $("count").textContent = `${page.shown.length} of ${page.list.length} episodes`;
  const box = $("list");
  box.innerHTML = `<div id="space"></div>`;
  $("space").style.height = `${page.shown.length * ROW_PX}px`;
  drawRows();
}

function drawRows() {
  const box = $("list"), space = $("space");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - EXTRA_ROWS);
  const last = Math.min(page.shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW_PX) + EXTRA_ROWS);
  space.replaceChildren(...page.shown.slice(first, last).map((e, i) => {
    const row = document.createElement("button");
    row.type = "button";
    row.className = `episode${first + i === page.at ? " on" : ""}${leftOut(e) ? " out" : ""}`;
    row.style.transform = `translateY(${(first + i) * ROW_PX}px)`;
    const mark = e.review.neutral ? "○" : e.review.excluded ? "–" : said(e) == null ? "?" : said(e) ? "✓" : "✗";
    const words = [mark, e.episode, e.purpose, counted(e.steps), e.human_steps ? `${e.human_steps} human-driven` : ""];
    row.append(...words.map((word, column) => {
      const cell = document.createElement(column ? "span" : "b");
      if (!column) cell.className = `mark m${said(e)}`;
      cell.textContent = word;
      return cell;
    }));
    row.onclick = () => open(first + i);
    return row;
  }));
}

async function load(e) { // steps, labels and scores of an episode; updates its row in the list, too
  const data = await get(`/api/episode?${query(e)}`);
  [e.review, e.voices] = [data.review, data.voices];
  return data;
}

// --- one episode --------------------------------------------------------------------------------

async function open(index) {
  if (!page.shown.length) return;
  page.at = Math.max(0, Math.min(index, page.shown.length - 1));
  const e = page.shown[page.at], top = page.at * ROW_PX, box = $("list");
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX - box.clientHeight;
  drawRows();
  const data = await load(e);
  if (page.shown[page.at] !== e) return; // another has been chosen meanwhile
  [page.episode, page.data] = [e, data];
  $("frames").replaceChildren(...page.data.cameras.map((name) => {
    const figure = document.createElement("figure");
    figure.innerHTML = `<img alt=""><figcaption></figcaption>`;
    figure.querySelector("figcaption").textContent = name;
    figure.dataset.camera = name;
    return figure;
  }));
  if (!page.data.cameras.length) $("frames").innerHTML = `<p class="none">This run recorded no pictures.</p>`;
  $("scrub").max = page.data.steps.length;
  drawVerdict();
  drawLegend();
  goto(0);
}

function drawVerdict() {
  const e = page.episode, r = page.data.review, last = page.data.steps.at(-1);
  $("name").textContent = `episode ${e.episode}`;
  const parts = [`${e.purpose}, ${counted(e.steps)}`, last?.ending ?? "running",
    r.neutral ? "neutral: counts as failed, kept out until labelled" : r.excluded ? "excluded" : said(e) == null ? "no label: counts as failed, kept out until labelled" : said(e) ? "success" : "failure"];
  if (r.first || r.last != null) parts.push(`keeps steps ${r.first} to ${r.last ?? e.steps - 1}`);
  $("verdict").textContent = parts.join(" · ");
  const voices = Object.entries(e.voices).map(([who, success]) => `${who}: ${success ? "success" : "failure"}`);
  $("voices").textContent = voices.length > 1 ? [...voices, ...(looked(e) ? [] : ["nobody has looked"])].join("; ") : "";
  $("words").replaceChildren(...atOnce(page.data.labels).reverse().map(([x, ...more]) => {
    const item = document.createElement("li");
    const when = new Date(x.stamp_ns / 1e6).toLocaleTimeString();
    const steps = x.step == null ? "" : more.length ? ` steps ${x.step} to ${more.at(-1).step}` : ` step ${x.step}`;
    const value = x.kind === "undo" ? ` of number ${x.value}` : ["neutral", "keep_from", "keep_to"].includes(x.kind) ? "" : ` ${x.value}`;
    item.textContent = `${when} ${x.author}: ${x.kind}${value}${steps} (number ${x.label})`;
    return item;
  }));
}

function atOnce(labels) { // one press may be many labels, one for each step
  const groups = new Map();
  for (const x of labels) {
    const said = x.kind === "shows" ? `${x.author} ${x.stamp_ns}` : `${x.author} number ${x.label}`;
    groups.set(said, [...(groups.get(said) ?? []), x]);
  }
  return [...groups.values()];
}

const scoreColour = (i) => SCORE_COLOURS[i % SCORE_COLOURS.length];

function drawLegend() {
  $("scores").replaceChildren(...page.data.scores.map(({ author, kind }, i) => {
    const item = document.createElement("span");
    const dash = author === PREDICATE ? "4 3" : "none";
    item.innerHTML = `<svg viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" stroke="${scoreColour(i)}" stroke-width="2.500" stroke-dasharray="${dash}"/></svg>`;
    item.append(`${kind === "progress" ? "progress" : "success"}, ${author}`);
    return item;
  }));
}

function drawScores(pen, width, w, soft) {
  const top = TRACK_PX + 6, height = SCORES_PX - 10;
  pen.strokeStyle = soft;
  pen.globalAlpha = 0.35;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const y of [top, top + height]) { pen.moveTo(0, y); pen.lineTo(width, y); } // one and zero
  pen.stroke();
  pen.globalAlpha = 1;
  page.data.scores.forEach(({ author, points }, line) => {
    pen.strokeStyle = scoreColour(line);
    pen.lineWidth = 1.8;
    pen.setLineDash(author === PREDICATE ? [5, 4] : []);
    pen.beginPath();
    points.forEach(([frame, value], i) => pen[i ? "lineTo" : "moveTo"](frame * w, top + height * (1 - Math.max(0, Math.min(1, value)))));
    pen.stroke();
    pen.fillStyle = scoreColour(line);
    if (points.length > page.data.steps.length / 2) return;
    for (const [frame, value] of points) pen.fillRect(frame * w - 2, top + height * (1 - value) - 2, 4, 4); // of a model that is asked only now and then
  });
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

function drawTrack() {
  const canvas = $("track"), pen = canvas.getContext("2d"), steps = page.data.steps, r = page.data.review;
  canvas.width = canvas.clientWidth * devicePixelRatio;
  const height = TRACK_PX + (page.data.scores.length ? SCORES_PX : 0);
  canvas.style.height = `${height}px`;
  canvas.height = height * devicePixelRatio;
  pen.scale(devicePixelRatio, devicePixelRatio);
  const width = canvas.clientWidth, w = width / Math.max(steps.length, 1);
  const soft = getComputedStyle(document.body).getPropertyValue("--soft");
  pen.font = "13px system-ui";
  steps.forEach((s, i) => {
    const kept = !r.excluded && i >= r.first && (r.last == null || i <= r.last);
    pen.globalAlpha = kept ? 1 : 0.25;
    pen.fillStyle = COLOURS[s.driver] ?? "#888";
    pen.fillRect(i * w, 0, Math.max(w - 0.5, 0.5), 16);
    if (s.outcome !== "pass") { pen.fillStyle = s.outcome === "hold" ? "#b3261e" : "#9a6700"; pen.fillRect(i * w, 17, Math.max(w - 0.5, 0.5), 4); }
    if (s.reward > 0) { pen.fillStyle = "#1f7a3d"; pen.fillRect(i * w, 84, Math.max(w, 2), 8); }
  });
  pen.globalAlpha = 1;
  ["#0b6bcb", "#1f7a3d", "#b3261e"].forEach((colour, axis) => {
    pen.strokeStyle = colour;
    pen.beginPath();
    steps.forEach((s, i) => pen[i ? "lineTo" : "moveTo"]((i + 0.5) * w, 52 - s.action[axis] * 26));
    pen.stroke();
  });
  if (page.data.scores.length) drawScores(pen, width, w, soft);
  pen.strokeStyle = soft;
  pen.beginPath();
  pen.moveTo(((page.step) + 0.5) * w, 0);
  pen.lineTo(((page.step) + 0.5) * w, height);
  pen.stroke();
}

function goto(step) {
  const e = page.episode, steps = page.data.steps;
  page.step = Math.max(0, Math.min(step, steps.length));
  $("scrub").value = page.step;
  for (const figure of $("frames").querySelectorAll("figure")) {
    figure.querySelector("img").src = at(`/api/frame/${figure.dataset.camera}/${page.step}?${query(e)}`);
  }
  const s = steps[Math.min(page.step, steps.length - 1)];
  $("step").textContent = s ? `step ${page.step} of ${steps.length} · ${s.driver} · ${s.outcome}${s.reason ? `: ${s.reason}` : ""} · reward ${s.reward ?? "unlabelled"} · action ${s.action.map((a) => a.toFixed(2)).join("  ")}` : "";
  drawTrack();
}

// --- what the person says -----------------------------------------------------------------------

const shownStep = () => Math.min(page.step, page.data.steps.length - 1);
const stepBefore = () => { // the picture is what this step led to
  if (!page.step) throw new Error("no step has led to the first picture");
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
  undo: () => {
    const mine = page.data.labels.filter((x) => x.author === page.about.you);
    const undone = new Set(mine.filter((x) => x.kind === "undo").map((x) => x.value));
    const words = atOnce(mine.filter((x) => x.kind !== "undo"));
    const last = words.filter((said) => !said.some((x) => undone.has(x.label))).at(-1);
    if (!last) throw new Error("nothing of yours to take back");
    return { kind: "undo", value: last[0].label };
  },
};

async function say(word) {
  const e = page.episode; // what the person sees, whatever is being loaded
  try {
    await post("/api/label", { ...key(e), ...SAY[word]() });
    const data = await load(e);
    if (page.episode === e) {
      page.data = data;
      drawVerdict();
      drawTrack();
    }
    drawRows();
  } catch (error) { toast(error.message); }
}

function play() {
  if (page.playing) { clearInterval(page.playing); page.playing = null; return; }
  page.playing = setInterval(() => {
    if (page.step >= page.data.steps.length) { play(); return; }
    goto(page.step + 1);
  }, 1000 / (page.data.control_hz || 10));
}

const ACTIONS = {
  ArrowRight: () => goto(page.step + 1), ArrowLeft: () => goto(page.step - 1), ArrowDown: () => open(page.at + 1), ArrowUp: () => open(page.at - 1),
  Home: () => goto(0), End: () => goto(page.data.steps.length), Space: play,
  Enter: () => say("success"), Backspace: () => say("failure"), KeyN: () => say("neutral"), KeyX: () => say("exclude"),
  KeyS: () => say("shows"), KeyB: () => say("shows_not"), BracketLeft: () => say("keep_from"), BracketRight: () => say("keep_to"), KeyU: () => say("undo"),
};

function asked() { // #run=...&actor=...&episode=...: the episode that a link names
  const wanted = new URLSearchParams(location.hash.slice(1));
  const at = page.shown.findIndex((e) => ["run", "actor", "episode"].every((k) => String(e[k]) === wanted.get(k)));
  return Math.max(at, 0);
}

async function start() {
  try {
    [page.about, page.list] = await Promise.all([get("/api/about"), get("/api/episodes")]);
  } catch (error) { toast(error.message); return; }
  drawList();
  $("list").onscroll = drawRows;
  $("scrub").oninput = () => goto(Number($("scrub").value));
  addEventListener("keydown", (event) => {
    if (!(event.code in ACTIONS) || event.ctrlKey || event.metaKey || !page.data) return;
    event.preventDefault();
    ACTIONS[event.code]();
  });
  addEventListener("resize", () => page.data && drawTrack());
  document.querySelectorAll("[data-say]").forEach((b) => { b.onclick = () => say(b.dataset.say); });
  document.querySelectorAll("[data-filter]").forEach((b) => {
    b.onclick = () => {
      page.filter = b.dataset.filter;
      document.querySelectorAll("[data-filter]").forEach((o) => o.setAttribute("aria-pressed", o === b));
      drawList();
      open(0);
    };
  });
  await open(asked());
  globalThis.robotRL = page;
}
start();
