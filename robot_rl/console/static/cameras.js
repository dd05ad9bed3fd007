// The page of cameras: each whole, with its crop, beside what the network sees; the crop of one can be drawn.
// What the network sees is always computed by the program, never here.

import { connect, get, post } from "./socket.js";
import { toast } from "./toast.js";

const $ = (id) => document.getElementById(id);
const GREEN_S = 0.2, AMBER_S = 0.6;
const GRIP_PX = 12; // a corner is taken within so many pixels of the screen
const LEAST_PX = 2; // a smaller rectangle is a click
const HEAD_BYTES = 12; // lengths of what follows, three times u32: JSON, whole picture, seen picture
const FIELDS = ["left", "top", "width", "height"];
const cards = (globalThis.robotRL = { cameras: {} }).cameras; // for tests and the curious

async function start() {
  const about = await get("/api/cameras");
  document.title = `${about.title} · robot-rl cameras`;
  $("of").textContent = about.title;
  const shown = about.drawn ? about.cameras.filter((c) => c.name === about.drawn) : about.cameras;
  $("cards").style.setProperty("--rows", shown.length);
  document.body.classList.toggle("draws", Boolean(about.drawn));
  for (const camera of shown) cards[camera.name] = new Card(camera, camera.name === about.drawn);
}

class Card {
  constructor(camera, draws) {
    Object.assign(this, { camera, draws, crop: camera.crop, asked: undefined, number: 0, head: null });
    this.box = $("card").content.cloneNode(true).firstElementChild;
    this.box.dataset.camera = camera.name;
    this.get = (query) => this.box.querySelector(query);
    this.get(".name").textContent = camera.name;
    $("cards").append(this.box);
    this.svg = this.get("svg");
    if (draws) this.beDrawn();
    this.line = connect(`/ws/camera/${encodeURIComponent(camera.name)}`, {
      binary: true, asks: true,
      onOpen: () => { this.number = 0; this.ask(); },
      onMessage: async (data) => {
        try { await this.take(data); } finally { this.ask(); } // after a picture that nobody can decode, too
      },
      onClose: () => this.gone(),
    });
  }

  ask() { // one question is under way at a time
    const crop = JSON.stringify(this.crop);
    const said = { after: this.number, same: crop === this.asked };
    if (this.draws) said.crop = this.crop;
    this.asked = crop;
    this.line.send(JSON.stringify(said));
  }

  async take(data) {
    const lengths = new Uint32Array(data, 0, 3), at = HEAD_BYTES + lengths[0];
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, HEAD_BYTES, lengths[0])));
    [this.head, this.number] = [head, head.number];
    await draw(this.get(".whole canvas"), new Uint8Array(data, at, lengths[1]), "image/jpeg");
    await draw(this.get(".seen canvas"), new Uint8Array(data, at + lengths[1], lengths[2]), "image/png");
    this.tell();
  }

  tell() {
    const h = this.head, problem = h.problem ?? h.crop_problem;
    this.box.classList.toggle("lost", Boolean(h.problem));
    this.box.classList.toggle("empty", !h.number);
    this.box.classList.toggle("blind", Boolean(h.crop_problem));
    this.get(".source").textContent = h.source;
    const badge = this.get("h2 .age"), age_s = h.age_s;
    badge.className = `age ${h.problem || age_s == null || age_s > AMBER_S ? "red" : age_s > GREEN_S ? "amber" : "green"}`;
    badge.textContent = age_s == null ? "no picture" : age_s < 1 ? `${(1000 * age_s).toFixed(0)} ms old` : `${age_s.toFixed(1)} s old`;
    this.get(".warning").textContent = h.warning ?? "";
    this.facts();
    this.explain(problem);
    if (h.number) this.overlay();
    this.get(".save").disabled = Boolean(problem) || !h.number;
  }

  facts() {
    const h = this.head, c = this.camera, rows = [];
    if (h.number) {
      rows.push(["picture", `${h.width} × ${h.height}, ${h.rate_hz ? `${h.rate_hz.toFixed(1)} Hz` : "rate not known yet"}`]);
      rows.push(["lost", `${h.lost} of ${h.number + h.lost} pictures`]);
    }
    if (h.part) {
      const [left, top, width, height] = h.part;
      rows.push(["crop", h.crop ? `${h.crop[2]} × ${h.crop[3]} from (${h.crop[0]}, ${h.crop[1]})` : "none: the whole picture"]);
      rows.push(["seen of it", `${width} × ${height} from (${left}, ${top})`]);
    }
    rows.push(["network", `${c.seen_width} × ${c.seen_height}${h.part ? `, 1 pixel = ${(h.part[2] / c.seen_width).toFixed(1)} of the picture` : ""}`]);
    if (h.number) rows.push(["intrinsics", h.source_k ? pinhole(h.source_k) : "nobody has said them"]);
    if (h.k) rows.push(["of the seen", pinhole(h.k)]);
    list(this.get(".facts > dl"), rows);
  }

  explain(problem) {
    this.get(".problem").hidden = !problem;
    if (!problem) return;
    this.get(".problem b").textContent = problem.summary;
    list(this.get(".problem dl"), ["expected", "got", "fix"].map((key) => [key, problem[key]]));
  }

  overlay() { // the crop as it is drawn now; the part as the program has answered
    const { width: w, height: h, part } = this.head;
    this.svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
    const [x, y, cw, ch] = this.crop ?? [0, 0, w, h];
    place(this.svg.querySelector(".cut"), this.crop ?? [0, 0, 0, 0]);
    place(this.svg.querySelector(".part"), part ?? [0, 0, 0, 0]);
    const [l, t, pw, ph] = part ?? [0, 0, w, h];
    this.svg.querySelector(".shade").setAttribute("d", `M0 0h${w}v${h}h${-w}z M${l} ${t}h${pw}v${ph}h${-pw}z`);
    if (!this.draws) return;
    const size = this.perPixel() * 9;
    const corners = this.crop ? [[x, y], [x + cw, y], [x, y + ch], [x + cw, y + ch]] : [];
    this.svg.querySelector(".grips").replaceChildren(...corners.map(([cx, cy]) => {
      const grip = document.createElementNS(this.svg.namespaceURI, "rect");
      place(grip, [cx - size / 2, cy - size / 2, size, size]);
      return grip;
    }));
    FIELDS.forEach((name, i) => {
      const field = this.get(`[name=${name}]`);
      if (document.activeElement !== field) field.value = [x, y, cw, ch][i];
    });
  }

  perPixel() { // pixels of the picture in one of the screen
    return this.head.width / (this.svg.getBoundingClientRect().width || 1);
  }

  gone() {
    this.get("h2 .age").className = "age red";
    this.get("h2 .age").textContent = "the program has ended";
  }

  // --- drawing ------------------------------------------------------------------------------------

  beDrawn() {
    this.get(".crop").hidden = false;
    this.svg.tabIndex = 0;
    this.svg.addEventListener("pointerdown", (e) => this.grab(e));
    this.svg.addEventListener("pointermove", (e) => this.pull(e));
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, () => { this.held = null; });
    addEventListener("keydown", (e) => this.nudge(e));
    for (const name of FIELDS) this.get(`[name=${name}]`).addEventListener("input", () => this.typed());
    this.get("[data-do=all]").onclick = () => this.set(null);
    this.get("[data-do=fit]").onclick = () => { if (this.head?.part) this.set(this.head.part); };
    this.get(".crop").addEventListener("submit", (e) => { e.preventDefault(); this.save(); });
  }

  set(crop) {
    this.crop = crop;
    this.get(".saved").textContent = "";
    if (this.head?.number) this.overlay();
  }

  at(event) { // in pixels of the picture, within it
    const box = this.svg.getBoundingClientRect(), { width, height } = this.head;
    const x = ((event.clientX - box.left) / box.width) * width, y = ((event.clientY - box.top) / box.height) * height;
    return [clamp(Math.round(x), 0, width), clamp(Math.round(y), 0, height)];
  }

  grab(event) {
    if (!this.head?.number || event.button) return;
    this.svg.setPointerCapture(event.pointerId);
    const [x, y] = this.at(event), near = GRIP_PX * this.perPixel();
    this.held = { from: [x, y], anchor: [x, y], crop: null };
    if (!this.crop) return;
    const [l, t, w, h] = this.crop;
    for (const [cx, cy, ox, oy] of [[l, t, l + w, t + h], [l + w, t, l, t + h], [l, t + h, l + w, t], [l + w, t + h, l, t]]) {
      if (Math.hypot(cx - x, cy - y) < near) { this.held.anchor = [ox, oy]; return; } // the corner across stays
    }
    if (x > l && x < l + w && y > t && y < t + h) this.held.crop = this.crop;
  }

  pull(event) {
    if (!this.held) return;
    const [x, y] = this.at(event), { from, anchor, crop } = this.held;
    if (crop) return this.set(this.moved(crop, x - from[0], y - from[1]));
    const w = Math.abs(x - anchor[0]), h = Math.abs(y - anchor[1]);
    if (w >= LEAST_PX && h >= LEAST_PX) this.set([Math.min(x, anchor[0]), Math.min(y, anchor[1]), w, h]);
  }

  moved([l, t, w, h], dx, dy) {
    return [clamp(l + dx, 0, this.head.width - w), clamp(t + dy, 0, this.head.height - h), w, h];
  }

  nudge(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || !this.crop || !this.head?.number || event.altKey || event.metaKey || event.target.closest("input")) return;
    event.preventDefault();
    const [dx, dy] = step.map((s) => s * (event.shiftKey ? 10 : 1)), [l, t, w, h] = this.crop;
    if (!event.ctrlKey) return this.set(this.moved(this.crop, dx, dy));
    this.set([l, t, clamp(w + dx, LEAST_PX, this.head.width - l), clamp(h + dy, LEAST_PX, this.head.height - t)]);
  }

  typed() { // as it is: the program says what is wrong with it
    const numbers = FIELDS.map((name) => this.get(`[name=${name}]`).valueAsNumber);
    if (numbers.every(Number.isInteger)) this.set(numbers);
  }

  async save() {
    try {
      const done = await post("/api/crop", { crop: this.crop });
      const words = document.createElement("code");
      words.textContent = done.words;
      this.get(".saved").replaceChildren(`✓ ${done.said}. As words:`, words);
    } catch (error) {
      toast(error.message);
    }
  }
}

async function draw(canvas, bytes, type) {
  if (!bytes.length) return;
  const picture = await createImageBitmap(new Blob([bytes], { type }));
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  canvas.parentElement.style.setProperty("--ratio", picture.width / picture.height);
}

function place(rect, [x, y, width, height]) {
  for (const [key, value] of Object.entries({ x, y, width: Math.max(width, 0), height: Math.max(height, 0) })) rect.setAttribute(key, value);
}

function list(box, rows) { // only what has changed is written: a person may have marked a word
  const text = JSON.stringify(rows);
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  box.replaceChildren(...rows.flatMap(([key, value]) => {
    const [dt, dd] = ["dt", "dd"].map((tag) => document.createElement(tag));
    [dt.textContent, dd.textContent] = [key, value];
    return [dt, dd];
  }));
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const pinhole = (k) => `f ${k[0][0].toFixed(1)}, ${k[1][1].toFixed(1)}, c ${k[0][2].toFixed(1)}, ${k[1][2].toFixed(1)}`;

start().catch((error) => toast(error.message));
