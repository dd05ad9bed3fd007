// What all views of the studio share: elements, words for figures, requests, charts.

import { curve } from "./curves.js";
import { language, t, told } from "./language.js";
import { post } from "./socket.js";

export const $ = (id) => document.getElementById(id);

export function el(tag, props = {}, ...children) { // an element; text of children is text, never markup
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child != null && child !== ""));
  return made;
}

const PATIENT_MS = 150000; // a run's own page may take a minute to start, after another's
export const send = (path, body) => post(path, body, null, PATIENT_MS);

// --- figures in words -------------------------------------------------------------------------

export const percent = (x) => (x == null ? "–" : `${Math.round(100 * x)} %`);
export const number = (x) => (x == null ? "–" : Math.round(x).toLocaleString(language));
export const decimal = (x) => x.toLocaleString(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const moment = (ms) => new Date(ms).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });
export const ofAll = (n, all) => t("{n} of {all}", { n: number(n), all: number(all) });

export function bytes(x) {
  if (x == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const place = Math.min(Math.max(Math.floor(Math.log10(Math.max(x, 1)) / 3), 0), units.length - 1);
  const value = x / 10 ** (3 * place);
  return `${value < 10 && place ? decimal(value) : Math.round(value)} ${units[place]}`;
}

export function duration(s) {
  if (s == null || !(s >= 0)) return "–";
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 48 * 3600 ? `${decimal(s / 3600)} h` : t("{n} days", { n: decimal(s / 86400) });
}

const PHASES = {
  demos: t("recording demonstrations"), practice: t("practising"), exam: t("in an exam"), deployment: t("at work"),
  evaluation: t("being evaluated"), "evaluation with noise": t("being evaluated with noise"),
};
const BUSY = { eval: t("being evaluated"), deploy: t("at work") };
const RESTS = { stopped: t("stopped"), failed: t("failed"), killed: t("killed"), "no result": t("no result") };

export function stateWords(row) { // one word or two for the list: [kind, words]
  if (row.paused) return ["rest", t("paused")];
  if (row.state === "running") return ["live", PHASES[row.phase] ?? (row.phase || t("starting"))];
  const busy = row.busy.find((verb) => BUSY[verb]);
  if (busy) return ["live", BUSY[busy]];
  if (row.state === "ended") return row.mastered ? ["good", t("mastered")] : ["done", t("ended")];
  return [{ failed: "bad", killed: "bad", stopped: "rest" }[row.state] ?? "rest", RESTS[row.state] ?? row.state];
}

export const title = (row) => row.experiment || row.id.split("/")[0];
export const about = (row) => [row.task !== title(row) ? row.task : "", row.algo, row.robot, row.runtime].filter(Boolean).join(" · "); // for one line
export const place = (row) => row.id.split("/").slice(row.id.startsWith(`${title(row)}/`) ? 1 : 0).join("/");

// --- drawing ----------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function spark(points, label) { // a small curve of shares
  const path = points.length > 1 ? curve(points, { low: 0, high: 1 }) : "";
  return svg("svg", { class: "spark", viewBox: "0 0 100 41", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { class: "base", d: "M0,40H100" }), svg("path", { d: path }));
}

export function interval(success) { // success with its 95 % interval as a small scale from 0 to 1
  const box = el("span", { className: "scale" });
  if (success == null) return box;
  if (success.wilson_low != null) {
    const range = el("i", { className: "range" });
    range.style.left = `${100 * success.wilson_low}%`;
    range.style.width = `${100 * (success.wilson_high - success.wilson_low)}%`;
    box.append(range);
  }
  const dot = el("i", { className: success.kind === "practice" ? "dot soft" : "dot" });
  dot.style.left = `${100 * success.success}%`;
  box.append(dot);
  return box;
}

export function successWords(success) {
  if (success == null) return t("no figure yet");
  const { kind, wilson_low: low, wilson_high: high, successes, episodes } = success, share = percent(success.success);
  if (kind === "practice") return episodes === 1 ? t("{share} of 1 practice episode", { share }) : t("{share} of the last {n} practice episodes", { share, n: episodes });
  return t("{n} of {all}, 95 % interval {low} to {high} %", { n: number(successes), all: number(episodes), low: Math.round(100 * low), high: Math.round(100 * high) });
}

function ticks(most) {
  const raw = Math.max(most, 1) / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

export function chart(series, label) { // [{name, points: [[steps, share]], kind}] over the same axes
  const box = el("figure", { className: "chart" });
  const draw = () => {
    const wide = Math.max(box.clientWidth, 240), high = 190, left = 44, bottom = 24, top = 8, right = 10;
    const most = Math.max(1, ...series.flatMap((s) => s.points.map((p) => p[0])));
    const x = (v) => left + (v / most) * (wide - left - right), y = (v) => top + (1 - v) * (high - top - bottom);
    const root = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": label });
    for (const v of [0, 0.25, 0.5, 0.75, 1]) {
      root.append(svg("line", { class: "grid", x1: left, x2: wide - right, y1: y(v), y2: y(v) }));
      if (v % 0.5 === 0) root.append(svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${100 * v} %`));
    }
    for (const v of ticks(most)) root.append(svg("text", { x: x(v), y: high - 6, "text-anchor": "middle" }, v.toLocaleString(language)));
    for (const { points, kind } of series) {
      if (points.length < 2) continue;
      root.append(svg("path", { class: `line ${kind}`, d: points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)},${y(b).toFixed(1)}`).join("") }));
    }
    box.replaceChildren(root, el("figcaption", {}, ...series.map((s) => el("span", { className: `tag ${s.kind}` }, s.name)), el("small", {}, t("over env steps"))));
  };
  let wide = 0;
  new ResizeObserver(() => { if (box.clientWidth !== wide) { wide = box.clientWidth; draw(); } }).observe(box);
  draw();
  return box;
}

export function command(text) { // a command line to copy
  const button = el("button", { type: "button", className: "copy", title: t("Copy the command") }, t("Copy"));
  button.onclick = async () => { await navigator.clipboard?.writeText(text); button.textContent = t("Copied"); setTimeout(() => { button.textContent = t("Copy"); }, 1500); };
  return el("div", { className: "command" }, el("code", {}, text), button);
}

export const trouble = (error) => el("pre", { className: "trouble", role: "alert", lang: "en" }, error.message ?? String(error));

export const warning = (plan) => (plan.warning ? el("p", { className: "warning" }, told(plan.warning)) : "");
