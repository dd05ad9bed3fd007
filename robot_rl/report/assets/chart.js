// One crosshair for all charts, as far as their x axes reach; values at the cursor, theme button.
"use strict";
const root = document.documentElement;
document.getElementById("theme").onclick = () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
};

const format = (v, unit) => {
  if (unit === "%") return (100 * v).toFixed(0) + " %";
  const size = Math.abs(v);
  const text =
    size >= 1e6 ? (v / 1e6).toPrecision(3) + "M"
    : size >= 1e4 ? (v / 1e3).toPrecision(3) + "k"
    : size && size < 1e-3 ? v.toExponential(1)
    : String(+v.toPrecision(4));
  return unit ? text + " " + unit : text;
};

const nearest = (xs, x) => {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid; else high = mid;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
};

const charts = [...document.querySelectorAll("svg.chart[data-chart]")].map((svg) => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  svg.parentElement.append(tip);
  return { svg, tip, meta: JSON.parse(svg.dataset.chart), cursor: svg.querySelector(".cursor") };
});

const show = (chart, x, own) => {
  const { svg, tip, meta, cursor } = chart;
  const px = meta.left + ((x - meta.x0) / (meta.x1 - meta.x0)) * (meta.right - meta.left);
  const line = cursor.firstElementChild;
  for (const [k, v] of [["x1", px], ["x2", px], ["y1", meta.top], ["y2", meta.bottom]]) line.setAttribute(k, v);
  cursor.setAttribute("visibility", meta.x0 <= x && x <= meta.x1 ? "visible" : "hidden");
  tip.hidden = !own;
  if (!own) return;
  tip.replaceChildren();
  const add = (text) => {
    const row = document.createElement("div");
    row.textContent = text;
    tip.append(row);
  };
  const decimals = Math.max(2 - Math.floor(Math.log10(meta.x1 - meta.x0)), 0);
  add(meta.x_label + " " + x.toLocaleString("en", { maximumFractionDigits: decimals }));
  for (const s of meta.series) add(s.label + "  " + format(s.y[nearest(s.x, x)], meta.unit));
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const half = tip.offsetWidth / 2;
  tip.style.left = Math.min(Math.max(px * scale, half), box.width - half) + "px";
  tip.style.top = meta.top * scale - 4 + "px";
};

for (const chart of charts) {
  chart.svg.addEventListener("pointermove", (event) => {
    const { meta, svg } = chart;
    const box = svg.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const share = Math.min(Math.max((px - meta.left) / (meta.right - meta.left), 0), 1);
    const x = meta.x0 + share * (meta.x1 - meta.x0);
    for (const other of charts) show(other, x, other === chart);
  });
  chart.svg.addEventListener("pointerleave", () => {
    for (const { cursor, tip } of charts) {
      cursor.setAttribute("visibility", "hidden");
      tip.hidden = true;
    }
  });
}

const copy = document.getElementById("copy");
if (copy) copy.onclick = () => {
  navigator.clipboard.writeText(document.getElementById("commands").textContent).then(() => {
    copy.textContent = "copied";
  });
};
