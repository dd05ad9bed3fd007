// Which picture is the chosen one, whose axes the keys follow; how large the others are; and what is drawn at the tip
// of the tool in it.

import { Inset, height } from "./inset.js";
import { keyOf } from "./keymap.js";
import { number, t, told } from "./language.js";

const ARROW = 0.13, SHORT = 0.02; // length of an arrow across the view, and the least that is drawn; shares of the height
const LETTER = 0.02, EDGE = 0.02; // how wide a letter is at most, and how near to the edge a line comes; likewise
const NAMES = { video: "overview", video_wrist: "at the wrist", video_tool: "along the tool" };
const KEPT = "view", SECOND = "second", LAYOUT = "layout"; // what this browser remembers
const LAYOUTS = { // name -> its symbol
  one: "M1 1h14v14H1zM17 1h6v4h-6zM17 6h6v4h-6zM17 11h6v4h-6z",
  two: "M1 1h10.500v9H1zM12.500 1H23v9H12.500zM1 11h10.500v4H1zM12.500 11H23v4H12.500z",
  all: "M1 1h10.500v6.500H1zM12.500 1H23v6.500H12.500zM1 8.500h10.500V15H1zM12.500 8.500H23V15H12.500z",
};

export const nameOf = (camera) => (camera in NAMES ? t(NAMES[camera]) : camera);

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const column = (rotation, i) => rotation.map((row) => row[i]);

// {frame, yaw_rad} of what is up in a picture, about the vertical of its frame; null where nobody knows where the camera is
export function seen(place) {
  if (!place) return null;
  const up = column(place.rotation, 1), ahead = column(place.rotation, 2).map((v) => -v);
  const down = place.frame === "base" ? -ahead[2] : ahead[2]; // the tool's z axis points down
  const [x, y] = [0, 1].map((i) => ahead[i] + (down >= 0 ? up[i] : -up[i]));
  return { frame: place.frame, yaw_rad: Math.atan2(y, x) };
}

// the heading of W in base; `place`: of the chosen picture, where it is known
function heading(place, tcp) {
  const [x, y, z, w] = tcp.slice(3), tool = Math.atan2(2 * (x * y + z * w), 1 - 2 * (y * y + z * z)), view = seen(place);
  return !view ? tool : view.frame === "base" ? view.yaw_rad : tool - view.yaw_rad; // the tool's z axis points down
}

// where a point is in a picture, as shares of its height from the middle: right, down, and a metre there; null behind it, or where nobody knows the angle of view
export function projected(place, point) {
  const off = point.map((v, i) => v - place.position_m[i]);
  const depth = -dot(off, column(place.rotation, 2));
  if (depth < 1e-3 || !place.fovy_deg) return null;
  const scale = 0.5 / Math.tan((place.fovy_deg * Math.PI) / 360) / depth; // shares per metre
  return [scale * dot(off, column(place.rotation, 0)), -scale * dot(off, column(place.rotation, 1)), scale];
}

// tip and ends of the arrows of W, D and E in the frame of a place
function arrows(place, tcp) {
  const { frame, yaw_rad } = seen(place), base = frame === "base";
  const tip = base ? tcp.slice(0, 3) : [0, 0, 0];
  const ahead = [Math.cos(yaw_rad), Math.sin(yaw_rad), 0], up = [0, 0, base ? 1 : -1];
  const right = base ? [ahead[1], -ahead[0], 0] : [-ahead[1], ahead[0], 0]; // y of the tool is to the right of its x
  return { tip, ends: { W: ahead, D: right, E: up } };
}

export class Views {
  constructor({ cameras, task }, boxes, onChosen) {
    this.boxes = boxes; // name -> element
    this.onChosen = onChosen;
    this.kept = `${KEPT} ${task}`;
    this.places = {};
    this.inset = new Inset();
    const [before, second] = [this.kept, `${this.kept} ${SECOND}`].map((kept) => localStorage.getItem(kept)), names = Object.keys(boxes);
    for (const [name, box] of Object.entries(boxes)) {
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      mark.setAttribute("class", "tip");
      mark.setAttribute("aria-hidden", "true");
      box.append(mark);
      box.title = t("Make this the large picture; the keys follow it");
      box.onclick = () => this.choose(name);
    }
    if (!cameras.length) return;
    const chosen = boxes[before] ? before : names[0];
    this.second = second !== chosen && boxes[second] ? second : names[(names.indexOf(chosen) + 1) % names.length];
    this.layouts = names.length > 2 ? Object.keys(LAYOUTS) : ["one", "two"].slice(0, names.length);
    this.button = Object.assign(document.createElement("button"), { type: "button", className: "layout", hidden: names.length < 2 });
    this.button.innerHTML = '<svg viewBox="0 0 24 16" aria-hidden="true"><path/></svg>';
    this.button.onclick = (event) => { event.stopPropagation(); this.button.blur(); this.nextLayout(); };
    this.choose(chosen);
    const layout = localStorage.getItem(LAYOUT);
    this.arrange(this.layouts.includes(layout) ? layout : "one");
  }

  choose(name) {
    if (this.chosen && name !== this.chosen) this.second = this.chosen; // what was large stays large, where two are
    this.chosen = name;
    localStorage.setItem(this.kept, name);
    localStorage.setItem(`${this.kept} ${SECOND}`, this.second);
    for (const [other, box] of Object.entries(this.boxes)) {
      box.classList.toggle("chosen", other === name);
      box.classList.toggle("second", other === this.second && other !== name);
    }
    this.boxes[name].append(this.button, this.inset.box);
    this.onChosen(name);
  }

  arrange(layout) {
    this.layout = layout;
    this.boxes[this.chosen].parentElement.dataset.layout = layout;
    const said = { one: t("One large picture"), two: t("Two large pictures"), all: t("All pictures are equally large") }[layout];
    this.button.title = `${said} (${keyOf("Period")})`;
    this.button.setAttribute("aria-label", `${t("Layout")}: ${said}`);
    this.button.querySelector("path").setAttribute("d", LAYOUTS[layout]);
  }

  nextLayout() {
    if (!this.button || this.button.hidden) return;
    this.arrange(this.layouts[(this.layouts.indexOf(this.layout) + 1) % this.layouts.length]);
    localStorage.setItem(LAYOUT, this.layout);
  }

  next() {
    const names = Object.keys(this.boxes);
    if (names.length) this.choose(names[(names.indexOf(this.chosen) + 1) % names.length]);
  }

  get seen() { // what the keys are meant in; null: as seen from behind the tool
    return seen(this.places[this.chosen]);
  }

  draw(robot) {
    this.places = robot.places ?? {};
    for (const [name, box] of Object.entries(this.boxes)) { // what is the same is not written: the browser would lay it out again
      const mark = box.querySelector(".tip"), place = this.places[name], ratio = box.dataset.ratio || 4 / 3;
      const there = name === this.chosen && place && robot.tcp_in_base;
      if (there || mark.firstChild) mark.replaceChildren(...(there ? this.marks(place, robot, ratio) : []));
      const shape = `${-ratio / 2} -0.5 ${ratio} 1`;
      if (mark.getAttribute("viewBox") !== shape) mark.setAttribute("viewBox", shape);
    }
    const tcp = robot.tcp_in_base;
    this.inset.draw(tcp && robot.goal, tcp && heading(this.places[this.chosen], tcp));
  }

  marks(place, robot, ratio) {
    const { tip, ends } = arrows(place, robot.tcp_in_base), at = projected(place, tip), made = [];
    if (!at) return made;
    const add = (tag, attributes, text) => {
      const item = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) item.setAttribute(key, value);
      if (text) item.textContent = text;
      made.push(item);
    };
    for (const [key, way] of Object.entries(ends)) {
      const end = projected(place, tip.map((v, i) => v + (ARROW / at[2]) * way[i]));
      if (!end || Math.hypot(end[0] - at[0], end[1] - at[1]) < SHORT) continue; // it points at the eye
      add("line", { x1: at[0], y1: at[1], x2: end[0], y2: end[1], class: key });
      const along = end.map((v, i) => at[i] + 1.25 * (v - at[i]));
      add("text", { x: along[0], y: along[1] + 0.012, "text-anchor": "middle" }, key);
    }
    const stands = robot.gate?.mode && robot.gate.mode !== "run" ? robot.gate.reason : told(robot.clipped ?? "");
    const felt = [robot.force_n == null ? "" : `${number(robot.force_n, 1)} N`, robot.goal ? height(robot.goal) : ""].filter(Boolean).join(", ");
    for (const [line, said] of [felt, stands].filter(Boolean).entries()) {
      const text = said.slice(0, 60), x = at[0] + 0.04, fits = x + LETTER * text.length < ratio / 2 - EDGE;
      const where = fits ? { x } : { x: ratio / 2 - EDGE, "text-anchor": "end" }; // a line that would be cut ends at the edge
      add("text", { ...where, y: at[1] + 0.06 + 0.04 * line, class: robot.force_n > 40 ? "hard" : "" }, text);
    }
    return made;
  }
}
