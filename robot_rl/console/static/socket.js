// A WebSocket to this page's server that reconnects with exponential back-off; one message handler.

const ARM = new URLSearchParams(location.search).get("arm"); // which of several arms this page is about

// the page's secret: a link leads here with it, and it is kept for this origin; a cookie is sent to other ports, too
const told = new URLSearchParams(location.hash.slice(1)).get("page");
if (told) {
  localStorage.setItem("page", told);
  history.replaceState(null, "", location.pathname + location.search);
}
export const secret = () => globalThis.localStorage?.getItem("page") ?? ""; // a worker has no storage

export function at(path, arm = ARM) { // a path of the server, about an arm
  return arm ? `${path}${path.includes("?") ? "&" : "?"}arm=${encodeURIComponent(arm)}` : path;
}

export function connect(path, { onMessage, onOpen = () => {}, onClose = () => {}, binary = false, known = secret() }) {
  const line = { socket: null, closed: false };
  let wait_ms = 250;
  const open = () => {
    if (line.closed) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${path}`, `page-${known}`);
    if (binary) socket.binaryType = "arraybuffer";
    socket.onopen = () => { wait_ms = 250; line.socket = socket; onOpen(socket); };
    socket.onmessage = (event) => onMessage(event.data, socket);
    socket.onclose = () => {
      line.socket = null;
      onClose();
      setTimeout(open, wait_ms);
      wait_ms = Math.min(wait_ms * 2, 4000);
    };
  };
  open();
  line.send = (data) => { if (line.socket?.readyState === WebSocket.OPEN) line.socket.send(data); };
  line.close = () => { line.closed = true; line.socket?.close(); };
  return line;
}

export async function post(path, body, arm = ARM) {
  const send = () => fetch(at(path, arm), {
    method: "POST", keepalive: true,
    headers: { "X-Robot-RL-Page": secret(), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  const stops = /^\/api\/command\/(hold|stop)$/.test(path); // may be said twice; must be heard
  return read(await (stops ? send().catch(send) : send()));
}

export const get = async (path) => read(await fetch(at(path)));

async function read(answer) {
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(data.error ?? (typeof data.detail === "string" ? data.detail : `refused (${answer.status})`));
  return data;
}

// whether the server would let this page in; a server that does not answer may come back
export const isLetIn = () => fetch("/api/about").then((answer) => answer.status !== 401, () => true);
