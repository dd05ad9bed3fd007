// Goal and tip from above, in the axes of the keys: a small map in a corner of the large picture, with the goal in its
// middle. It can be put away, and this browser remembers that.

import { kbd } from "./keymap.js";
import { number, t } from "./language.js";

const SCALES_MM = [2, 10, 50, 200, 500]; // from the middle to the edge
const NEARER = 0.6, FURTHER = 0.9; // shares of a scale at which the next one is taken: apart, so that it does not flicker
const CROSS = 0.12, TICK = 0.25; // of the goal; of the tip's x axis; shares of a scale
const HIGH = 1 / 4; // of the height counts for the scale: from high above, the last millimetre says nothing
const LEVEL = 0.7; // an axis with less of the vertical in it leads sideways
const KEPT = "inset";
const SHAPES = { outline: "path", ring: "circle", way: "line", tick: "line", dot: "circle" };

const mm = (v) => number(Math.abs(v), Math.abs(v) < 9.95 ? 1 : 0);

// how far the tip is from the goal along the goal's axis
const along_mm = (goal) => 1e3 * goal.axis.reduce((sum, v, i) => sum + v * (goal.tip_m[i] - goal.position_m[i]), 0);

export function height(goal) { // in words
  const n = along_mm(goal);
  if (Math.abs(goal.axis[2]) < LEVEL) return n >= 0 ? t("{n} mm before it", { n: mm(n) }) : t("{n} mm past it", { n: mm(n) });
  return n >= 0 ? t("{n} mm above", { n: mm(n) }) : t("{n} mm below", { n: mm(n) });
}

// [right, away] mm of a way [x, y] m in base, seen by whoever looks along `heading_rad`
const turned = ([x, y], heading_rad) => {
  const c = Math.cos(heading_rad), s = Math.sin(heading_rad);
  return [1e3 * (x * s - y * c), 1e3 * (x * c + y * s)];
};

export class Inset {
  constructor() {
    this.box = Object.assign(document.createElement("div"), { className: "inset", hidden: true });
    this.box.innerHTML = '<svg viewBox="-1 -1 2 2" role="img"></svg><p></p><button type="button"></button>';
    this.box.onclick = (event) => event.stopPropagation(); // it lies on a picture
    this.map = this.box.querySelector("svg");
    for (const [name, tag] of Object.entries(SHAPES)) {
      this[name] = this.map.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      this[name].setAttribute("class", name);
    }
    this.button = this.box.querySelector("button");
    this.button.title = t("Shows the goal and the tip from above, or puts them away");
    this.button.onclick = () => { this.button.blur(); this.toggle(); };
    this.scale_mm = SCALES_MM.at(-1);
    this.away = localStorage.getItem(KEPT) === "away";
    this.write();
  }

  toggle() {
    this.away = !this.away;
    localStorage.setItem(KEPT, this.away ? "away" : "");
    this.write();
  }

  write() {
    this.box.classList.toggle("away", this.away);
    this.button.setAttribute("aria-expanded", !this.away);
    this.button.innerHTML = `<span>${this.away ? t("Goal") : `±${this.scale_mm} mm`}</span> ${kbd("Comma")}`;
  }

  // goal: what the robot side says; heading_rad: what is up in the map, in base
  draw(goal, heading_rad) {
    this.box.hidden = !goal;
    if (!goal) return;
    const [right, away] = turned(goal.tip_m.map((v, i) => v - goal.position_m[i]), heading_rad), high = height(goal);
    this.choose(Math.max(Math.abs(right), Math.abs(away), HIGH * Math.abs(along_mm(goal))));
    const across = right < 0 ? t("{n} mm left", { n: mm(right) }) : t("{n} mm right", { n: mm(right) });
    const along = away < 0 ? t("{n} mm towards you", { n: mm(away) }) : t("{n} mm away", { n: mm(away) });
    this.map.setAttribute("aria-label", t("The tip, from the goal: {across}, {along}, {high}", { across, along, high }));
    this.box.querySelector("p").textContent = high;
    this.shape(goal, heading_rad, [right, away].map((v) => Math.max(-0.95, Math.min(0.95, v / this.scale_mm))));
  }

  choose(far_mm) {
    const at = SCALES_MM.indexOf(this.scale_mm), fits = (share) => SCALES_MM.findIndex((scale) => far_mm <= share * scale);
    const nearer = fits(NEARER), further = far_mm > FURTHER * this.scale_mm ? fits(FURTHER) : at;
    const chosen = SCALES_MM.at(nearer >= 0 && nearer < at ? nearer : further);
    if (chosen === this.scale_mm) return;
    this.scale_mm = chosen;
    this.write();
  }

  shape(goal, heading_rad, [x, y]) {
    const set = (name, values) => { for (const [key, value] of Object.entries(values)) this[name].setAttribute(key, value); };
    const ways = (yaw) => [yaw, yaw + Math.PI / 2].map((a) => turned([Math.cos(a) / 1e3, Math.sin(a) / 1e3], heading_rad));
    const [u, v] = ways(goal.yaw_rad), at = (a, b) => `${a * u[0] + b * v[0]},${-(a * u[1] + b * v[1])}`;
    const [a, b] = goal.half_m.map((half) => (1e3 * half) / this.scale_mm);
    const cross = `M${at(CROSS, 0)}L${at(-CROSS, 0)}M${at(0, CROSS)}L${at(0, -CROSS)}`; // seen also where the outline is larger than the map
    set("outline", { d: cross + (a ? `M${at(a, b)}L${at(-a, b)}L${at(-a, -b)}L${at(a, -b)}Z` : "") });
    set("ring", { r: (1e3 * (goal.tolerance_m ?? 0)) / this.scale_mm });
    set("way", { x2: x, y2: -y });
    const [tick] = ways(goal.tip_yaw_rad);
    set("tick", { x1: x, y1: -y, x2: x + TICK * tick[0], y2: -y - TICK * tick[1] });
    set("dot", { cx: x, cy: -y, r: 0.07 });
  }
}
