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

const LOOK_MS = 1000; // a line that is cut without a word stays open for minutes
const SILENT_LOOKS = 5, SILENT_LOOKS_BINARY = 20; // a large picture takes its time on a slow line

// asks: the server speaks only when it was asked; otherwise it says something each second
export function connect(path, { onMessage, onOpen = () => {}, onClose = () => {}, binary = false, known = secret(), asks = false }) {
  const line = { socket: null };
  const most = binary ? SILENT_LOOKS_BINARY : SILENT_LOOKS;
  let wait_ms = 250, socket, due = true, looks = 0; // looks since something was heard, while something is due
  const heard = () => { due = !asks; looks = 0; };
  const open = () => {
    const scheme = location.protocol === "https:" ? "wss" : "ws", made = new WebSocket(`${scheme}://${location.host}${path}`, `page-${known}`);
    [socket, due, looks] = [made, true, 0];
    if (binary) made.binaryType = "arraybuffer";
    made.onopen = () => { heard(); wait_ms = 250; line.socket = made; onOpen(made); };
    made.onmessage = (event) => { heard(); onMessage(event.data, made); };
    made.onclose = gone;
  };
  const gone = () => {
    [line.socket, due] = [null, false];
    onClose();
    setTimeout(open, wait_ms);
    wait_ms = Math.min(wait_ms * 2, 4000);
  };
  const look = () => { // looks are counted: after a stall of the page itself there is one, before what has come meanwhile
    if (!due || ++looks < most) return;
    socket.onopen = socket.onmessage = socket.onclose = null; // it may say so for a minute
    socket.close();
    gone();
  };
  open();
  setInterval(look, LOOK_MS);
  line.send = (data) => { if (line.socket?.readyState === WebSocket.OPEN) { line.socket.send(data); due = true; } };
  return line;
}

const COMMAND_MS = 5000, ANSWER_MS = 30000; // labels may wait for the store
const STOP_MS = [1200, 700, 700, 1500, 1500, 1500]; // the server itself waits 1 s for the robot side; a new line takes a second

export async function post(path, body, arm = ARM, limit_ms = path.startsWith("/api/command") ? COMMAND_MS : ANSWER_MS) {
  const send = (ms) => ask(at(path, arm), ms, {
    method: "POST", keepalive: true,
    headers: { "X-Robot-RL-Page": secret(), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (!/^\/api\/command\/(hold|stop)(\?|$)/.test(path)) return read(await send(limit_ms));
  // a stop may be said twice, and must be heard: each try takes a dead connection out of those that the browser keeps
  for (const ms of STOP_MS) {
    const answer = await send(ms).catch(() => null);
    if (answer) return read(answer);
  }
  throw new Error("the hold was not heard: nobody answers. Press the emergency stop if the arm moves, and hold again");
}

export const get = async (path, limit_ms = ANSWER_MS) => read(await ask(at(path), limit_ms));

// within a limit: what waits for an answer keeps one of the few connections of the browser, and a stop needs one, too
async function ask(address, limit_ms, about = {}) {
  try {
    return await fetch(address, { ...about, signal: AbortSignal.timeout(limit_ms) });
  } catch { throw new Error("the server of this page does not answer"); }
}

async function read(answer) {
  if (answer.ok) return answer.json();
  const data = await answer.json().catch(() => ({}));
  const said = data.error ?? (typeof data.detail === "string" ? data.detail : `refused (${answer.status})`);
  throw Object.assign(new Error(said), { status: answer.status });
}

// whether the server would let this page in; a server that does not answer may come back
export const isLetIn = () => ask("/api/about", 1500).then((answer) => answer.status !== 401, () => true);
