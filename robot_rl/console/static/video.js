// Cameras: the newest picture only. The page asks for the next one when it has drawn the last.

import { connect } from "./socket.js";

const HEAD_BYTES = 16; // number u32, age_ms f32, width u16, height u16, frozen u8, 3 spare
const GREEN_MS = 100, AMBER_MS = 200;

export function show(name, seen_size, parent) { // seen_size: [width, height] of what the network sees
  const box = document.createElement("div");
  box.className = "camera";
  box.dataset.camera = name;
  box.innerHTML = `<canvas></canvas><span class="name"><b></b><small></small></span><span class="age red">no picture</span>`;
  box.querySelector(".name b").textContent = name;
  parent.append(box);
  const canvas = box.querySelector("canvas"), badge = box.querySelector(".age"), note = box.querySelector(".name small");
  const pen = canvas.getContext("2d");
  const seen = { taken: -Infinity, frozen: false, drawn: 0, lags: [] };

  connect(`/ws/video/${encodeURIComponent(name)}`, {
    binary: true,
    onOpen: (socket) => socket.send("next"),
    onMessage: async (data, socket) => {
      if (!data.byteLength) return; // no new picture yet
      const arrived = performance.now(), head = new DataView(data, 0, HEAD_BYTES);
      const age_ms = head.getFloat32(4, true);
      const picture = await createImageBitmap(new Blob([new Uint8Array(data, HEAD_BYTES)], { type: "image/jpeg" }));
      canvas.width = picture.width;
      canvas.height = picture.height;
      pen.drawImage(picture, 0, 0);
      if (!seen.drawn && seen_size) note.textContent = compare(picture, seen_size);
      picture.close();
      seen.taken = arrived - age_ms;
      seen.frozen = head.getUint8(12) === 1;
      seen.drawn += 1;
      seen.lags.push(performance.now() - seen.taken);
      if (seen.lags.length > 1000) seen.lags.shift();
      socket.send("next");
    },
  });

  const tick = () => {
    const age_ms = performance.now() - seen.taken;
    const colour = seen.frozen || age_ms >= AMBER_MS ? "red" : age_ms >= GREEN_MS ? "amber" : "green";
    badge.className = `age ${colour}`;
    badge.textContent = !Number.isFinite(age_ms) ? "no picture"
      : seen.frozen ? "frozen: the same picture again and again"
      : age_ms < 1000 ? `${age_ms.toFixed(0)} ms` : `${(age_ms / 1000).toFixed(1)} s old`;
  };
  setInterval(tick, 100);
  return seen;
}

function compare(picture, [width, height]) {
  const size = `${width}x${height}`;
  return picture.width === width && picture.height === height ? `${size}, as the network sees it` : `the network sees it at ${size}`;
}
