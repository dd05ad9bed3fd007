// The map of starts: where the episodes of the list began, coloured by how they went; a point leads to its episode.

import { language, t } from "./language.js";
import { OUTCOMES, outcome } from "./outcome.js";

const SVG = "http://www.w3.org/2000/svg";
const PLACE = "review-map";
const PAD_PX = 12, CELL_PX = 34, NEAR_PX = 18;
const known = (e) => (["success", "failure"].includes(outcome(e)) ? outcome(e) : "other");
const share = (e) => (e.steps ? e.human_steps / e.steps : 0);
const mixed = (from, to, part) => `color-mix(in oklab, var(${to}) ${Math.round(100 * part)}%, var(${from}))`;
const COLOURINGS = { // value in [0, 1] of an episode, null = it has none; its colours
  outcome: { value: (e) => ({ success: 1, failure: 0 })[outcome(e)] ?? null, from: "--fail", to: "--ok" },
  share: { value: share, from: "--policy", to: "--human" },
};
const NUMBER = new Intl.NumberFormat(language, { maximumSignificantDigits: 3, useGrouping: false });
const number = (value) => NUMBER.format(value).replace("-", "−");
const titled = ({ name, unit }) => name + (unit ? ` (${unit})` : "");

export function makeMap(box, { get, key, shown, current, open, failed }) {
  const part = (name) => box.querySelector(`#map-${name}`);
  const svg = part("points");
  const map = { places: null, axes: [], points: [], at: -1, asked: null };
  const words = (e) => JSON.stringify(Object.values(key(e)));

  async function load() {
    map.asked ??= get("/api/starts");
    try {
      const answer = await map.asked;
      map.places = new Map(answer.starts.map((start) => [words(start), start.at]));
      map.axes = answer.axes;
      offer();
      draw();
    } catch (error) { failed(error); }
    map.asked = null;
  }

  function offer() { // the two axes with the largest spread, unless others were chosen before
    const names = map.axes.map((axis) => axis.name);
    ["x", "y"].forEach((which, i) => {
      const field = part(which), before = field.value;
      field.replaceChildren(...map.axes.map((axis) => new Option(titled(axis), axis.name)));
      field.value = names.includes(before) ? before : names[Math.min(i, names.length - 1)] ?? "";
    });
  }

  function draw() {
    if (!box.open || !map.places) return;
    const [x, y] = ["x", "y"].map((which) => map.axes.findIndex((axis) => axis.name === part(which).value));
    const episodes = shown().map((e) => ({ e, at: map.places.get(words(e)) })).filter(({ at }) => at?.[x] != null && at[y] != null);
    const wide = svg.clientWidth, high = svg.clientHeight;
    const scales = [[x, wide], [y, high]].map(([axis, size]) => scale(episodes.map(({ at }) => at[axis]), size));
    map.points = episodes.map(({ e, at }) => ({ e, at: [at[x], at[y]], x: scales[0].at(at[x]), y: high - scales[1].at(at[y]) }));
    map.points.sort((a, b) => a.x - b.x || a.y - b.y);
    map.at = -1;
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    svg.replaceChildren(...cells(wide, high), ...map.points.map(mark));
    const missing = shown().length - map.points.length;
    part("none").hidden = map.points.length > 0;
    part("none").textContent = map.axes.length ? t("No episode of this list has a start on these axes.") : t("The recorded states do not tell where these episodes started.");
    part("missing").textContent = map.points.length && missing ? t("{n} not on these axes", { n: missing }) : "";
    const ends = [["x", 0], ["y", 1]].map(([which, i]) => [which, scales[i]]);
    for (const [which, { low, top }] of ends) {
      part(`${which}-low`).textContent = map.points.length ? number(low) : "";
      part(`${which}-high`).textContent = map.points.length ? number(top) : "";
    }
    drawLegend();
    ring();
    tell(null);
  }

  function scale(values, size) {
    const low = Math.min(...values), top = Math.max(...values);
    return { low, top, at: (value) => (top > low ? PAD_PX + ((size - 2 * PAD_PX) * (value - low)) / (top - low) : size / 2) };
  }

  const colouring = () => COLOURINGS[part("by").value];

  function cells(wide, high) { // the mean of each cell, behind the points
    const { value, from, to } = colouring();
    const sums = new Map();
    for (const point of map.points) {
      const of = value(point.e);
      if (of == null) continue;
      const name = `${Math.floor(point.x / CELL_PX)} ${Math.floor(point.y / CELL_PX)}`;
      const [sum, count] = sums.get(name) ?? [0, 0];
      sums.set(name, [sum + of, count + 1]);
    }
    return [...sums].map(([name, [sum, count]]) => {
      const [column, row] = name.split(" ").map(Number);
      const cell = made("rect", { x: column * CELL_PX, y: row * CELL_PX, width: Math.min(CELL_PX, wide - column * CELL_PX), height: Math.min(CELL_PX, high - row * CELL_PX), class: "cell" });
      cell.style.fill = mixed(from, to, sum / count);
      return cell;
    });
  }

  function mark(point, i) {
    const { value, from, to } = colouring();
    const { e } = point, of = value(e), byOutcome = part("by").value === "outcome";
    const failure = byOutcome && known(e) === "failure";
    const item = failure
      ? made("path", { d: `M${point.x - 4} ${point.y - 4}l8 8m0 -8l-8 8`, class: "cross" })
      : made("circle", { cx: point.x, cy: point.y, r: 4.5, class: of == null ? "hollow" : "full" });
    if (of != null) item.style[failure ? "stroke" : "fill"] = mixed(from, to, of);
    item.id = `start-${i}`;
    item.dataset.episode = e.episode;
    item.setAttribute("role", "option");
    item.setAttribute("aria-label", text(point));
    return item;
  }

  function text({ e, at }) {
    const [x, y] = ["x", "y"].map((which) => map.axes.find((axis) => axis.name === part(which).value));
    const place = [[x, at[0]], [y, at[1]]].map(([axis, value]) => `${axis.name} ${number(value)}${axis.unit ? ` ${axis.unit}` : ""}`);
    return t("episode {n}: {what}, {share} % human-driven; {place}", { n: e.episode, what: t(OUTCOMES[outcome(e)][1]), share: Math.round(100 * share(e)), place: place.join(", ") });
  }

  function tell(i) {
    map.at = i ?? -1;
    const point = map.points[map.at];
    part("text").textContent = point ? text(point) : "";
    svg.querySelector(".near")?.classList.remove("near");
    const item = point && svg.querySelector(`#start-${map.at}`);
    item?.classList.add("near");
    if (item) svg.setAttribute("aria-activedescendant", item.id);
    else svg.removeAttribute("aria-activedescendant");
  }

  function ring() { // around the episode that is on the page
    svg.querySelector(".ring")?.remove();
    const point = map.points.find(({ e }) => e === current());
    if (point && box.open) svg.append(made("circle", { cx: point.x, cy: point.y, r: 9, class: "ring" }));
  }

  function near(event) {
    const { left, top } = svg.getBoundingClientRect();
    const far = map.points.map((p) => Math.hypot(p.x - event.clientX + left, p.y - event.clientY + top));
    const i = far.indexOf(Math.min(...far));
    return far[i] <= NEAR_PX ? i : null;
  }

  function drawLegend() {
    const { from, to } = colouring(), byShare = part("by").value === "share";
    part("legend").replaceChildren(...(byShare
      ? [["0 %", 0], ["50 %", 0.5], [t("100 % human-driven"), 1]].map(([text_, value]) => legend("full", text_, mixed(from, to, value)))
      : [legend("full", t("success"), `var(${to})`), legend("cross", t("failure"), `var(${from})`), legend("hollow", t("other"), "")]));
  }

  function legend(shape, text_, c) {
    const item = document.createElement("span"), mark_ = made("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
    const inner = shape === "cross" ? made("path", { d: "M2 2l8 8m0 -8l-8 8", class: shape }) : made("circle", { cx: 6, cy: 6, r: 4.5, class: shape });
    if (c) inner.style[shape === "cross" ? "stroke" : "fill"] = c;
    mark_.append(inner);
    item.append(mark_, text_);
    return item;
  }

  const KEYS = {
    ArrowRight: () => tell(Math.min(map.at + 1, map.points.length - 1)), ArrowLeft: () => tell(Math.max(map.at - 1, 0)),
    Enter: () => map.points[map.at] && open(map.points[map.at].e), Escape: () => tell(null),
  };
  svg.onkeydown = (event) => {
    if (!(event.code in KEYS) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation(); // the same keys step through the episode elsewhere
    KEYS[event.code]();
  };
  svg.onpointermove = (event) => tell(near(event));
  svg.onpointerleave = () => tell(null);
  svg.onclick = (event) => {
    const i = near(event);
    if (i != null) open(map.points[i].e);
  };
  for (const which of ["x", "y", "by"]) part(which).onchange = draw;
  box.ontoggle = () => {
    localStorage.setItem(PLACE, box.open ? "open" : "");
    if (box.open) load();
  };
  new ResizeObserver(draw).observe(svg);
  if (localStorage.getItem(PLACE)) box.open = true;
  return { draw, ring };
}

function made(tag, attributes) {
  const item = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) item.setAttribute(name, value);
  return item;
}
