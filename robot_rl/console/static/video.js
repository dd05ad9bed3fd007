// Cameras: the newest picture only, drawn by a worker, which asks for the next one when it has drawn the last.

import { number, t } from "./language.js";
import { at, secret } from "./socket.js";

const GREEN_MS = 100, AMBER_MS = 200;
const SLOW_MS = 1000; // a small picture that is drawn for the person comes now and then
const KEPT = 1000; // lags kept, for tests and the curious
const TICK_MS = 100;

const ticks = []; // all ages are written at once, or the page would be laid out for each
setInterval(() => { for (const tick of ticks) tick(); }, TICK_MS);

export function show(name, seen_size, parent, words = name) { // seen_size: [width, height] of what the network sees
  const box = document.createElement("div");
  box.className = "camera";
  box.dataset.camera = name;
  box.innerHTML = `<canvas></canvas><span class="name"><b></b><small></small></span><span class="age red"></span>`;
  box.querySelector(".name b").textContent = words;
  parent.append(box);
  const canvas = box.querySelector("canvas").transferControlToOffscreen();
  const badge = box.querySelector(".age"), note = box.querySelector(".name small");
  const seen = { box, taken: -Infinity, frozen: false, drawn: 0, lags: [], slow: false };
  seen.setSlow = (slow) => { seen.slow = slow; worker.postMessage({ slow }); };

  const worker = new Worker("/static/video_worker.js", { type: "module", name });
  worker.postMessage({ canvas, path: at(`/ws/video/${encodeURIComponent(name)}`), known: secret() }, [canvas]);
  worker.onmessage = ({ data }) => {
    const size = `${data.width}x${data.height}`; // a camera that is started again may have another size
    if (seen_size && size !== seen.size) note.textContent = compare(data, seen_size);
    seen.size = size;
    box.dataset.ratio = data.width / data.height;
    seen.taken = data.taken - performance.timeOrigin;
    seen.frozen = data.frozen;
    seen.drawn += 1;
    seen.lags.push(data.drawn - data.taken);
    if (seen.lags.length > KEPT) seen.lags.shift();
  };

  ticks.push(() => {
    const age_ms = performance.now() - seen.taken;
    const extra_ms = seen.slow ? SLOW_MS : 0;
    const colour = seen.frozen || age_ms >= AMBER_MS + extra_ms ? "red" : age_ms >= GREEN_MS + extra_ms ? "amber" : "green";
    const text = !Number.isFinite(age_ms) ? t("no picture")
      : seen.frozen ? t("frozen: the same picture again and again")
      : !box.classList.contains("chosen") ? "" // a small picture shows the colour only
      : age_ms < 1000 ? `${age_ms.toFixed(0)} ms` : t("{age} s old", { age: number(age_ms / 1000, 1) });
    if (badge.className !== `age ${colour}`) badge.className = `age ${colour}`;
    if (badge.textContent !== text) badge.textContent = text;
  });
  return seen;
}

function compare(picture, [width, height]) {
  const size = `${width}x${height}`;
  return picture.width === width && picture.height === height ? t("{size}, as the network sees it", { size }) : t("the network sees it at {size}", { size });
}
