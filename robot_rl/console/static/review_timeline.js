// The timeline of an episode: who drove, what the gate did, the actions, the reward, and what models say of each moment.
// Column k is frame k, as in the plots below it.

import { t, told } from "./language.js";

export const SCORE_COLOURS = ["#2f86e0", "#e0702a", "#8f6ee0", "#0d9aa3", "#d4528f", "#b58a1a"];
const DRIVERS = { policy: "#0b6bcb", correction: "#d9631a", recovery: "#7d57cf", demo: "#1f7a3d" };
const GATE = { clipped: "#9a6700", hold: "#b3261e" };
const REWARD = "#1f7a3d", OTHER = "#888";
const AXES = ["--axis-x", "--axis-y", "--axis-z"]; // of the action's first three entries
const TRACK_PX = 92, SCORES_PX = 64; // drivers, gate, actions, reward; below them the scores of models, if there are any
const PREDICATE = "predicate"; // the task's own rule: dashed

export const colour = (name) => getComputedStyle(document.body).getPropertyValue(name);
const scoreColour = (i) => SCORE_COLOURS[i % SCORE_COLOURS.length];
export const columns = (data) => data.steps.length + 1; // one for each frame

export function fit(canvas) { // its pen, in pixels of the page
  canvas.width = canvas.clientWidth * devicePixelRatio;
  canvas.height = canvas.clientHeight * devicePixelRatio;
  const pen = canvas.getContext("2d");
  pen.scale(devicePixelRatio, devicePixelRatio);
  return pen;
}

export function drawTrack(canvas, data) {
  const { steps, review: r, scores } = data;
  canvas.style.height = `${TRACK_PX + (scores.length ? SCORES_PX : 0)}px`;
  const pen = fit(canvas);
  const width = canvas.clientWidth, w = width / columns(data);
  steps.forEach((s, i) => {
    const kept = !r.excluded && i >= r.first && (r.last == null || i <= r.last);
    const wide = Math.max(w - 0.5, 0.5);
    pen.globalAlpha = kept ? 1 : 0.25;
    pen.fillStyle = DRIVERS[s.driver] ?? OTHER;
    pen.fillRect(i * w, 0, wide, 16);
    if (s.outcome in GATE) { pen.fillStyle = GATE[s.outcome]; pen.fillRect(i * w, 17, wide, 4); }
    if (s.reward > 0) { pen.fillStyle = REWARD; pen.fillRect(i * w, 84, Math.max(w, 2), 8); }
  });
  pen.globalAlpha = 1;
  AXES.forEach((name, axis) => {
    pen.strokeStyle = colour(name);
    pen.beginPath();
    steps.forEach((s, i) => axis < s.action.length && pen[i ? "lineTo" : "moveTo"]((i + 0.5) * w, 52 - s.action[axis] * 26));
    pen.stroke();
  });
  if (scores.length) drawScores(pen, data, width, w);
}

function drawScores(pen, data, width, w) {
  const top = TRACK_PX + 6, height = SCORES_PX - 10;
  pen.strokeStyle = colour("--soft");
  pen.globalAlpha = 0.35;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const y of [top, top + height]) { pen.moveTo(0, y); pen.lineTo(width, y); } // one and zero
  pen.stroke();
  pen.globalAlpha = 1;
  data.scores.forEach(({ author, points }, line) => {
    pen.strokeStyle = scoreColour(line);
    pen.lineWidth = 1.8;
    pen.setLineDash(author === PREDICATE ? [5, 4] : []);
    pen.beginPath();
    points.forEach(([frame, value], i) => pen[i ? "lineTo" : "moveTo"]((frame + 0.5) * w, top + height * (1 - Math.max(0, Math.min(1, value)))));
    pen.stroke();
    pen.fillStyle = scoreColour(line);
    if (points.length > data.steps.length / 2) return;
    for (const [frame, value] of points) pen.fillRect((frame + 0.5) * w - 2, top + height * (1 - value) - 2, 4, 4); // of a model that is asked only now and then
  });
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

export function drawLegend(box, data) { // of the colours that this episode has
  const { steps, actions } = data;
  const has = (test) => steps.some(test);
  const marks = [
    ...Object.entries(DRIVERS).filter(([driver]) => has((s) => s.driver === driver)).map(([driver, c]) => [told(driver), c]),
    ...Object.entries(GATE).filter(([word]) => has((s) => s.outcome === word)).map(([word, c]) => [word === "hold" ? t("gate held") : t("gate clipped"), c]),
    ...(has((s) => s.reward > 0) ? [[t("reward"), REWARD]] : []),
  ];
  const count = Math.min(AXES.length, steps[0]?.action.length ?? 0);
  const lines = AXES.slice(0, count).map((name, i) => [`${i ? "" : `${t("action")} `}${actions[i] ?? i}`, `var(${name})`]);
  box.replaceChildren(...marks.map(([words, c]) => entry("block", words, c)), ...lines.map(([words, c]) => entry("line", words, c)));
}

function entry(shape, words, c) {
  const item = document.createElement("span"), mark = document.createElement("i");
  mark.className = shape;
  mark.style.background = c;
  item.append(mark, words);
  return item;
}

export function drawScoreLegend(box, data) {
  box.replaceChildren(...data.scores.map(({ author, kind }, i) => {
    const item = document.createElement("span");
    const dash = author === PREDICATE ? "4 3" : "none";
    item.innerHTML = `<svg viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" stroke="${scoreColour(i)}" stroke-width="2.500" stroke-dasharray="${dash}"/></svg>`;
    item.append(kind === "compatible" ? t("compatible with the base demonstrations") : `${kind === "progress" ? t("progress") : t("success")}, ${author}`);
    return item;
  }));
}
