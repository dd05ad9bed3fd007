// Fetches, decodes and draws one camera beside the page's own thread, which carries the driver's keys.

import { connect } from "./socket.js";

const HEAD_BYTES = 16; // number u32, age_ms f32, width u16, height u16, frozen u8, 3 spare

let ask = "next"; // "slow": now and then is enough

onmessage = ({ data: { canvas, path, known, slow } }) => {
  if (slow !== undefined) ask = slow ? "slow" : "next";
  if (!canvas) return;
  const screen = canvas.getContext("bitmaprenderer"); // shows a decoded picture without copying it
  connect(path, {
    binary: true, known,
    onOpen: (socket) => socket.send(ask),
    onMessage: async (data, socket) => {
      if (!data.byteLength) return; // no new picture yet
      const arrived = performance.now(), head = new DataView(data, 0, HEAD_BYTES);
      try {
        const picture = await createImageBitmap(new Blob([new Uint8Array(data, HEAD_BYTES)], { type: "image/jpeg" }));
        const { width, height } = picture;
        screen.transferFromImageBitmap(picture);
        postMessage({ // times count from 1970, because a worker's own clock starts with the worker
          number: head.getUint32(0, true), width, height, frozen: head.getUint8(12) === 1,
          taken: performance.timeOrigin + arrived - head.getFloat32(4, true), drawn: performance.timeOrigin + performance.now(),
        });
      } finally { socket.send(ask); } // after a picture that nobody can decode, too
    },
  });
};
