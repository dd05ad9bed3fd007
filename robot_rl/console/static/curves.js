// Small curves as SVG paths: [[x, y], ...] in a box without units; the caption says the newest value.

export function curve(points, { low = null, high = null } = {}) {
  if (points.length < 2) return "";
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const x0 = xs[0], x1 = Math.max(xs.at(-1), x0 + 1e-9);
  const y0 = low ?? Math.min(...ys), y1 = Math.max(high ?? Math.max(...ys), y0 + 1e-9);
  return points
    .map(([x, y], i) => `${i ? "L" : "M"}${(((x - x0) / (x1 - x0)) * 100).toFixed(2)},${(40 - ((y - y0) / (y1 - y0)) * 38).toFixed(2)}`)
    .join("");
}

export function smooth(points, window) { // mean of the newest `window` values at every point
  let sum = 0;
  return points.map(([x, y], i) => {
    sum += y - (i >= window ? points[i - window][1] : 0);
    return [x, sum / Math.min(i + 1, window)];
  });
}
