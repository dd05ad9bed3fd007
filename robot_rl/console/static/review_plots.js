// Plots of recorded signals under the pictures: chosen by the person, remembered for the task.

import { language, t } from "./language.js";
import { colour, columns, fit, SCORE_COLOURS } from "./review_timeline.js";

const PAD_PX = 5, MOST_PLOTS = 8; // as many as the server answers at once

const NUMBER = new Intl.NumberFormat(language, { maximumSignificantDigits: 4, useGrouping: false });
const number = (value) => NUMBER.format(value).replace("-", "−");
const titled = ({ name, unit }) => name + (unit ? ` (${unit})` : "");

export function makePlots(box, adder, { get, query, task, failed }) {
  const place = `review-plots-${task}`;
  const plots = { known: [], chosen: remembered(), shown: [], data: null, step: 0 };

  function remembered() {
    try {
      const names = JSON.parse(localStorage.getItem(place) ?? "[]");
      return Array.isArray(names) ? names.filter((name) => typeof name === "string").slice(0, MOST_PLOTS) : [];
    } catch { return []; }
  }

  function offer() {
    const left = plots.known.filter((signal) => !plots.chosen.includes(signal.name));
    adder.replaceChildren(new Option(plots.chosen.length < MOST_PLOTS ? t("Add a plot …") : t("{n} plots at most", { n: MOST_PLOTS }), ""),
      ...left.map((signal) => new Option(titled(signal), signal.name)));
    adder.disabled = plots.chosen.length >= MOST_PLOTS || !left.length;
  }

  async function load(e, data) { // the curves of the episode that is on the page
    plots.data = data;
    const { chosen } = plots;
    if (plots.known.length && !chosen.length) { draw([]); return; }
    const names = chosen.map((name) => `&name=${encodeURIComponent(name)}`).join("");
    try {
      const answer = await get(`/api/signals?${query(e)}${names}`);
      plots.known = answer.known;
      if (plots.data === data && plots.chosen === chosen) draw(answer.signals);
    } catch (error) {
      if (chosen.length && !plots.known.length) { // remembered, and this run does not have it
        plots.chosen = [];
        return load(e, data);
      }
      if (plots.data === data) draw([]); // none of another episode
      failed(error);
    }
    offer();
  }

  function choose(names, e) {
    plots.chosen = names;
    localStorage.setItem(place, JSON.stringify(names));
    offer();
    return load(e, plots.data);
  }

  function draw(signals) {
    plots.shown = signals.map(figure);
    box.replaceChildren(...plots.shown.map((plot) => plot.figure));
    redraw();
  }

  function figure(signal) {
    const values = signal.points.flat().map(([, value]) => value).filter((value) => value != null);
    const most = signal.words.length - 1;
    const [low, high] = most > 0 ? [0, most] : values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
    const made = document.createElement("figure");
    made.className = "plot";
    made.dataset.signal = signal.name;
    made.innerHTML = `<figcaption><b></b><output></output><button type="button">×</button></figcaption><div><canvas role="img"></canvas><span class="high"></span><span class="low"></span></div>`;
    const word = (value) => (most > 0 ? signal.words[value] : number(value));
    made.querySelector("b").textContent = titled(signal) + (signal.left_out ? t(", {n} more entries", { n: signal.left_out }) : "");
    made.querySelector(".high").textContent = high > low || !values.length ? word(high) : "";
    made.querySelector(".low").textContent = values.length ? word(low) : t("nothing recorded");
    made.querySelector("canvas").setAttribute("aria-label", values.length ? t("{signal} over the steps, from {low} to {high}", { signal: titled(signal), low: word(low), high: word(high) }) : t("{signal}: nothing recorded", { signal: titled(signal) }));
    const close = made.querySelector("button");
    close.setAttribute("aria-label", t("remove the plot of {signal}", { signal: signal.name }));
    close.dataset.remove = signal.name;
    const outputs = signal.points.map((_, i) => {
      const item = document.createElement("span"), mark = document.createElement("i"), value = document.createElement("span");
      mark.className = "line";
      mark.style.background = SCORE_COLOURS[i % SCORE_COLOURS.length];
      item.append(mark, signal.lines[i] ? `${signal.lines[i]} ` : "", value);
      return item;
    });
    made.querySelector("output").replaceChildren(...outputs);
    return { signal, figure: made, canvas: made.querySelector("canvas"), values: outputs.map((item) => item.lastChild), low, high, word };
  }

  function redraw() {
    for (const { signal, canvas, low, high } of plots.shown) {
      const pen = fit(canvas), height = canvas.clientHeight, width = canvas.clientWidth, w = width / columns(plots.data);
      const y = (value) => (high > low ? PAD_PX + (height - 2 * PAD_PX) * ((high - value) / (high - low)) : height / 2);
      if (low < 0 && high > 0) { // where zero is
        pen.strokeStyle = colour("--rule");
        pen.beginPath();
        pen.moveTo(0, y(0));
        pen.lineTo(width, y(0));
        pen.stroke();
      }
      pen.lineWidth = 1.6;
      signal.points.forEach((points, i) => {
        pen.strokeStyle = SCORE_COLOURS[i % SCORE_COLOURS.length];
        pen.beginPath();
        let last = null;
        for (const [frame, value] of points) {
          const x = (frame + 0.5) * w;
          if (value == null) { last = null; continue; }
          if (last == null) pen.moveTo(x - 1, y(value)); // so that a single point is seen
          else if (signal.words.length) pen.lineTo(x, y(last)); // a word holds until the next one
          pen.lineTo(x, y(value));
          last = value;
        }
        pen.stroke();
      });
    }
    show(plots.step);
  }

  function show(step) { // the values under the cursor
    plots.step = step;
    for (const { signal, values, word } of plots.shown) {
      signal.points.forEach((points, i) => {
        const value = under(points, step);
        values[i].textContent = value == null ? "–" : word(value);
      });
    }
  }

  return { load, show, redraw, offer, choose, chosen: () => plots.chosen };
}

function under(points, step) { // value of the last point up to this frame
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= step) low = middle + 1; else high = middle;
  }
  return points[low - 1]?.[1];
}
