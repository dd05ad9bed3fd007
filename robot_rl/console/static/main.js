// The console page: state on top, cameras, labels, learning. Draws what the server says, nothing else.

import { drawArms, holdAll } from "./arms.js";
import { Control, KEYS } from "./control.js";
import { curve, smooth } from "./curves.js";
import { drawDeployment, drawScene } from "./deploy.js";
import { help } from "./help.js";
import { kbd, keyOf, meaning } from "./keymap.js";
import { number, t, told, translate } from "./language.js";
import { drawPractice, offerPractice } from "./practice.js";
import { drawReadiness, toggleReadiness } from "./readiness.js";
import { at, connect, get, isLetIn, post } from "./socket.js";
import { speak } from "./speak.js";
import { Strip, who } from "./strip.js";
import { toast } from "./toast.js";
import { Touch } from "./touch.js";
import { show } from "./video.js";
import { Views, nameOf } from "./views.js";
import { says, seat } from "./words.js";

const $ = (id) => document.getElementById(id);
const SHAPES = {
  POLICY: "M5 3l16 9-16 9z", SCRIPT: "M5 3h14v18H5zM8 7h8v2H8zM8 11h8v2H8zM8 15h5v2H8z", HUMAN: "M12 2a10 10 0 100 20 10 10 0 000-20z", HOLD: "M4 3h6v18H4zM14 3h6v18h-6z",
  "PROTECTIVE STOP": "M8 2h8l6 6v8l-6 6H8l-6-6V8z", RESETTING: "M12 2l10 10-10 10L2 12z", REWIND: "M12 3v18L2 12zM22 3v18l-10-9z",
  "RESET?": "M11 18h3v3h-3zM12.500 3a5.500 5.500 0 00-5.500 5.500h3a2.500 2.500 0 115 0c0 2.600-4 2.700-4 7h3c0-3 4-3.200 4-7A5.500 5.500 0 0012.500 3z",
  IDLE: "M3 10h18v4H3z", OFFLINE: "M5 3l7 7 7-7 2 2-7 7 7 7-2 2-7-7-7 7-2-2 7-7-7-7z",
};
const write = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; }; // a screen reader speaks each text once
const UNDO_MS = 5000;
const STRIP_MS = 3000;
const WINDOW = 20;
const SPOKEN = ["RESET?", "HOLD", "PROTECTIVE STOP", "OFFLINE"]; // words that ask a person to do something
const PHASES = { demo: "demos", train: "practice", eval: "evaluation", deploy: "deployment" };
const FIGURES = [
  ["success of 20", (f) => percent(f["episode/success_rate"])], ["human-driven", (f) => percent(f["episode/human_rate"])],
  ["env steps", (f) => number(f.env_steps)], ["human data", (f) => number(f["replay/demo"])],
];
const INTERNALS = [ // behind "Details"
  ["policy version", (f) => (f["weights/version"] < 0 ? t("none yet") : number(f["weights/version"]))], ["policy age", (f) => seconds(f["weights/staleness_s"])],
  ["replay", (f) => number(f["replay/online"])], ["updates per step", (f) => number(f["learner/utd"], 1)],
  ["mean Q", (f) => number(f["critic/q_mean"], 2) + (f["critic/q_std"] == null ? "" : ` ± ${number(f["critic/q_std"], 2)}`)],
  ["clock", (f) => (f["clock/factor"] == null ? "-" : `${number(f["clock/factor"], 1)} x`)],
  ["clock waits for", (f) => waitsFor(f)],
  ["rows to send", (f) => number(f["link/queue"])], ["late ticks", (f) => number(f["loop/late_ticks"])],
];
const percent = (v) => (v == null ? "-" : `${Math.round(v * 100)} %`);
const seconds = (v) => (v == null ? "-" : v < 100 ? `${number(v, 1)} s` : `${number(v / 60)} min`);

const waitsFor = (f) => {
  const [who, share] = ["gate", "operator", "actor", "learner"]
    .map((name) => [name, f[`clock/waited_${name}`] || 0]).reduce((a, b) => (b[1] > a[1] ? b : a));
  return share > 0.01 ? who : "-";
};

const page = { about: null, lease: { mine: false, holder: null }, word: "", said: null, mute: false, learning: null };
let control;

const doing = (work) => work.catch((error) => toast(told(error.message)));

function beep(hz) {
  if (page.mute) return;
  try {
    const audio = (beep.audio ??= new AudioContext()), tone = audio.createOscillator(), gain = audio.createGain();
    tone.frequency.value = hz;
    gain.gain.value = 0.05;
    tone.connect(gain).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.12);
  } catch { /* no sound here */ }
}

// --- what arrives -------------------------------------------------------------------------------

function drawState(now) {
  const { word } = now, said = says(now);
  const { mine, holder, elsewhere } = now.lease ?? {};
  const goesOn = word === "SCRIPT" && page.about?.practice && (mine || holder || elsewhere); // the script does not wait for the seat to be free
  const reason = goesOn ? (mine ? t("it stops while you hold the drive key") : t("it stops while {who} holds the drive key", { who: holder ?? t("a person") })) : told(now.reason) || (word === "REWIND" ? (now.lease.mine ? t("you drive") : t("{who} drives", { who: now.lease.holder ?? t("a person") })) : "");
  if (word !== page.word) {
    page.word = word;
    document.body.dataset.word = word;
    document.title = `${said} · robot-rl`;
    $("shape-path").setAttribute("d", SHAPES[word] ?? SHAPES.IDLE);
    $("acknowledge").hidden = word !== "PROTECTIVE STOP";
    $("ask").hidden = word !== "RESET?";
    const tones = { HUMAN: 880, POLICY: 660, "RESET?": 550, HOLD: 330, "PROTECTIVE STOP": 220 };
    if (word in tones) beep(tones[word]);
    if (SPOKEN.includes(word)) speak([said, told(now.reason)].filter(Boolean).join("\n"));
  }
  write("word", said);
  write("reason", reason.replaceAll("\n", ", "));
  $("reason").title = reason;
  write("asks", word === "RESET?" ? reason : "");
}

function drawAdvice(reason, english) { // why the arm stands still in full, and what to do about it
  const advice = told(english);
  $("advice").hidden = !advice;
  write("advice-why", advice ? told(reason) : "");
  write("advice-do", advice ? `${advice[0].toUpperCase()}${advice.slice(1)}.` : "");
}

function drawLease(lease, problem) {
  page.lease = lease;
  write("device", problem);
  $("device").title = problem;
  $("device").hidden = !lease.mine || !problem;
  $("ready").disabled = !lease.mine;
  page.touch.show(lease.mine);
  $("seat-first").hidden = lease.mine || page.about?.role !== "operator";
  if (lease.asked_by && lease.asked_by !== drawLease.asked) toast(t("{who} would like to have the seat: press {key} to leave it", { who: lease.asked_by, key: keyOf("KeyT") }));
  drawLease.asked = lease.asked_by;
  write("lease", seat(lease));
  const verb = t(lease.mine ? "Leave the seat" : "Take the seat");
  if ($("lease-button").dataset.verb !== verb) $("lease-button").innerHTML = `${verb} ${kbd("KeyT")}`;
  $("lease-button").dataset.verb = verb;
  $("lease-button").disabled = page.about?.role !== "operator";
}

function gauge(name, value, text) {
  $(`g-${name}`).value = value ?? 0;
  write(`v-${name}`, value == null ? "-" : text);
}

function drawRobot(robot, figures) {
  gauge("force", robot.force_n, `${number(robot.force_n, 1)} N`);
  gauge("speed", robot.speed_mm_s, `${number(robot.speed_mm_s)} mm/s`);
  gauge("gripper", robot.gripper_mm, `${number(robot.gripper_mm)} mm`);
  write("phase-word", told(figures.state ?? PHASES[robot.episode?.purpose] ?? "")); // before the first episode has ended
}

// the episode that ended last: a word, a sound, and how far the phase is
function drawResult(figures) {
  const ended = ["", "demo_", "eval_", "deploy_"].map((kind) => ({ kind, index: figures[`${kind}episode/index`] }))
    .filter((e) => e.index != null).sort((a, b) => b.index - a.index)[0];
  if (!ended || ended.index === page.result) return;
  const figure = (name) => figures[`${ended.kind}episode/${name}`];
  const success = figure("success") > 0, word = success ? "success" : figure("aborted") > 0 ? "aborted" : "failure";
  const exam = figures["exam/success"] == null ? "" : t("last exam {share}", { share: percent(figures["exam/success"]) });
  const demo = page.about.practice ? "" : t("demo {n} of {all}", { n: number(figures["session/demos"]), all: page.about.demos });
  const phase = { "demo_": demo, "eval_": t("evaluation"), "": exam }[ended.kind] ?? "";
  write("result", [`${success ? "✓" : "✗"} ${t(word)}`, phase].filter(Boolean).join(" · "));
  $("result").title = t("episode {n}", { n: number(ended.index) });
  $("result").className = word;
  $("result").hidden = false;
  if (page.result != null) { // not for what had ended before this page was opened
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) $("result").animate([{ transform: "scale(1.12)" }, { transform: "none" }], { duration: 600 });
    beep(success ? 1050 : 260);
    if (success) setTimeout(() => beep(1400), 130);
    speak([t(word), phase].filter(Boolean).join(", "));
  }
  page.result = ended.index;
  doing(page.strip.read());
}

function drawScore(score) { // only runs whose reward comes from a model have a score
  $("score").hidden = !score;
  if (!score) return;
  const name = $("score").querySelector("label");
  name.textContent = name.title = score.author;
  gauge("score", score.value, number(score.value, 2));
}

function drawAgreement(agreement) { // only runs with an ensemble of the base demonstrations have one
  $("agreement").hidden = !agreement;
  if (!agreement) return;
  const { driving, value } = agreement;
  gauge("agreement", driving ? value ?? 1 : null, value == null ? t("new") : percent(value)); // what nobody has shown yet is welcome
}

function drawLearning(figures, curves) {
  for (const [id, listed] of [["figures", FIGURES], ["internals", INTERNALS]]) {
    $(id).replaceChildren(...listed.map(([name, value]) => {
      const row = document.createElement("div");
      for (const [tag, words] of [["span", t(name)], ["b", value(figures)]]) row.appendChild(document.createElement(tag)).textContent = words;
      return row;
    }));
  }
  const drawn = [
    ["success, mean of 20 episodes", smooth(curves["episode/success"] ?? [], WINDOW), { low: 0, high: 1 }, percent],
    ["human-driven, mean of 20 episodes", smooth(curves["episode/intervention_rate"] ?? [], WINDOW), { low: 0, high: 1 }, percent],
  ];
  const inside = [["mean Q", curves["critic/q_mean"] ?? [], {}, (v) => number(v, 2)]];
  for (const [id, shown] of [["curves", drawn], ["inner-curves", inside]]) $(id).innerHTML = shown.map(([name, points, range, text]) =>
    `<figure><figcaption><span>${t(name)}</span><b>${points.length ? text(points.at(-1)[1]) : "-"}</b></figcaption>
     <svg viewBox="0 0 100 42" preserveAspectRatio="none"><path class="base" d="M0,40H100"/><path d="${curve(points, range)}"/></svg></figure>`).join("");
}

function drawFindings(findings) {
  $("findings").replaceChildren(...(findings.length ? findings : [null]).map((found) => {
    const item = document.createElement("li");
    item.className = found ? "warn" : "ok";
    const learns = page.figures?.["learner/utd"] != null; // before, there is nothing to complain about yet
    item.textContent = found ? `▲ ${found.what}` : t(learns ? "nothing to complain about" : "learning has not begun");
    if (found) {
      const fix = document.createElement("small");
      fix.textContent = found.fix;
      item.append(fix);
    }
    return item;
  }));
}

const STALE_MS = 1000; // telemetry comes ten times a second; an old word must not stay on the page

const ASK_AGAIN_MS = 2000;
const NOT_LET_IN = "the console does not know this page any more: open the newest link from the terminal";

const GONE_MS = 3000; // a busy machine is silent for a moment, too
const GONE = "this page does not reach the arm now. If you drove, the arm is held; if the policy or a script drove, it may go on: whether it moves, only a look at it tells, and the emergency stop works. If the run has ended, start the same command with the same run_dir again: it goes on where it was, and so does this page";

function watch() {
  const silent_ms = performance.now() - (onTelemetry.at ?? 0);
  if (silent_ms < STALE_MS) { watch.asked = performance.now(); watch.out = false; return; }
  const reason = watch.out ? NOT_LET_IN : "the console does not answer";
  page.look?.draw({ places: page.look.places }); // no old force or distance either
  drawRobot({}, {});
  write("lease", "-"); // who has the seat by now is not known here
  drawState({ word: "OFFLINE", says: "Offline", reason });
  drawAdvice(reason, watch.out || silent_ms < GONE_MS ? "" : GONE);
  if (performance.now() - watch.asked < ASK_AGAIN_MS) return;
  watch.asked = performance.now();
  isLetIn().then((known) => { watch.out = !known; });
}
watch.asked = 0;

function onTelemetry(text) {
  onTelemetry.at = performance.now();
  const now = JSON.parse(text);
  drawState(now);
  page.gone_ms = now.word === "OFFLINE" ? page.gone_ms ?? performance.now() : null;
  drawAdvice(now.reason, page.gone_ms && performance.now() - page.gone_ms > GONE_MS ? GONE : now.advice ?? "");
  drawLease(now.lease, now.robot.device_problem ?? "");
  page.robot = now.robot;
  const listed = drawReadiness(now.robot.ready ?? null, now.lease.mine, doing);
  const working = drawDeployment(page.figures ?? now.figures, page.about, listed || now.word === "RESET?");
  $("learning").hidden = working || listed || now.word === "RESET?"; // a list takes its place
  $("why").hidden = working || listed;
  drawScene(now.word === "RESET?" ? now.figures.scene : "", page.about);
  $("go").hidden = !now.robot.gate?.waits || now.word === "PROTECTIVE STOP" || page.about?.role !== "operator";
  if (now.learning !== page.learning) { // a slow page misses messages, but not that this count has changed
    page.learning = now.learning;
    page.figures = { ...now.figures };
    page.figures["episode/success_rate"] ??= smooth(now.curves["episode/success"] ?? [], WINDOW).at(-1)?.[1];
    page.figures["episode/human_rate"] = smooth(now.curves["episode/intervention_rate"] ?? [], WINDOW).at(-1)?.[1];
    drawLearning(page.figures, now.curves);
    drawFindings(now.findings);
    drawResult(now.figures);
  }
  page.look.draw(now.robot);
  drawRobot(now.robot, page.figures);
  drawScore(now.score);
  drawAgreement(now.agreement);
  drawPractice(now, page.said);
}

// --- what the person does -----------------------------------------------------------------------

const LABELS = {
  success: { kind: "success", value: 1 }, failure: { kind: "success", value: 0 }, neutral: { kind: "neutral", value: 1 },
  exclude: { kind: "exclude", value: 1 }, "not done": { kind: "shows", value: 0, last_s: 1 },
};
const SAID = { exclude: "excluded", "not done": "the last second is not a success yet" };
const ENDS = ["success", "failure"]; // said from the seat, these also end the episode

async function label(word, chosen = null) { // a key means the newest episode, whichever is chosen in the strip
  const ends = ENDS.includes(word) && page.lease.mine && !chosen;
  if (ends) control.pulse(word);
  [page.said, $("undo").hidden] = [null, true]; // whether or not an answer comes, the label before is not the newest
  const answer = await post("/api/label", { ...LABELS[word], ...chosen });
  const ruled = !chosen && page.about.ruled && page.robot?.episode?.purpose === "eval"; // what is said there is a label beside the rule's own word
  page.said = { ...answer, word, ends: ends && !ruled };
  const said = t(SAID[word] ?? word) + (ruled ? t(", a label: the evaluation counts what the task's rule says") : "");
  $("said-text").textContent = t("episode {n}: {said}", { n: answer.episode, said });
  $("undo").hidden = false;
  clearTimeout(label.timer);
  label.timer = setTimeout(() => { $("undo").hidden = true; }, UNDO_MS);
  beep(word === "success" ? 990 : 440);
  await page.strip.read();
}

async function undo() {
  if (!page.said || $("undo").hidden) return;
  const { episode, run, actor, label: number, ends } = page.said;
  await post("/api/label", { run, actor, episode, kind: "undo", value: number });
  // the label has ended the episode and stands in its last step: nobody knows how it would have ended
  if (ends) await post("/api/label", { run, actor, episode, kind: "neutral", value: 1 });
  $("said-text").textContent = t("episode {n}: {said}", { n: episode, said: t(ends ? "taken back; neutral until you say more" : "taken back") });
  $("undo").hidden = true;
  await page.strip.read();
}

function drawChosen(episode) { // which episode the buttons are about
  $("label-about").textContent = episode ? t("episode {n}", { n: episode.episode }) : t("newest episode");
  $("labels").classList.toggle("chosen", Boolean(episode)); // without "not a success yet", which is about what happens now
}

// the controller's own stop first, then the gate's: each is a deliberate press
async function acknowledge() {
  if (page.word === "PROTECTIVE STOP") await post(`/api/command/${page.robot.stopped ? "resume" : "acknowledge"}`);
}

async function ready() { // to say no, press Hold: nothing moves until somebody says go
  if (page.word === "RESET?") await post("/api/command/ready");
}

const toggleLease = () => post(`/api/lease/${page.lease.mine ? "release" : "claim"}`);
const ACTIONS = {
  Escape: (event) => (event?.shiftKey && page.about?.arms.length ? holdAll(page.about.arms) : post("/api/command/hold")),
  KeyT: toggleLease,
  KeyF: ready, KeyY: acknowledge, KeyR: async () => $("go").hidden || post("/api/command/go"),
  Enter: () => label("success"), NumpadEnter: () => label("success"), Backspace: () => label("failure"), KeyN: () => label("neutral"), KeyX: () => label("exclude"), KeyB: () => label("not done"),
  KeyP: async () => page.look.next(), KeyH: async () => { control.nudge = !control.nudge; }, Comma: async () => page.look.inset.toggle(), Period: async () => page.look.nextLayout(),
  KeyM: async () => mute(), KeyV: async () => open(at("/review"), "_blank", "noopener"),
};

function mute() {
  page.mute = !page.mute;
  $("mute").setAttribute("aria-pressed", page.mute);
  $("mute").firstChild.textContent = `${t(page.mute ? "Sound off" : "Sound on")} `;
}

const night = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme ?? (night.matches ? "dark" : "light");

function drawTheme(chosen) { // the button names the theme that it leads to
  if (chosen) document.documentElement.dataset.theme = chosen;
  $("theme").textContent = t(theme() === "dark" ? "Light" : "Dark");
}

function onKey(event) {
  if (!page.about && event.code !== "Escape") return; // only a hold needs nothing of the run
  if (event.code !== "Escape" && event.target.closest("input, textarea, select")) return; // a hold is heard everywhere
  if (event.key === "?") { event.preventDefault(); help(); return; }
  if (event.code === "Escape") { $("help").close(); $("who").close(); }
  const code = meaning(event.code);
  const reached = event.target.closest("button, a, summary"); // by Tab: Enter presses it, but no key accepts what is not ready
  if (event.code.endsWith("Enter") && reached && !reached.closest("#readiness")) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") { event.preventDefault(); doing(undo()); return; } // as printed
  if (event.repeat || !(code in ACTIONS)) return;
  if (code !== "Escape" && (event.ctrlKey || event.metaKey || event.altKey)) return; // a hold is heard whatever else is pressed
  event.preventDefault();
  doing(ACTIONS[code](event));
}

function drawLegend() {
  const shown = Object.values(KEYS).filter((k) => k.say);
  $("legend").replaceChildren(...shown.map((key) => {
    const item = document.createElement("span");
    item.innerHTML = `${key.say.map(kbd).join(" ")} ${t(key.means)}`;
    return item;
  }));
  const other = $("legend").appendChild(document.createElement("span"));
  other.innerHTML = `${kbd("KeyP")} ${t("other picture")}`;
  other.hidden = page.views.length < 2;
  const nudge = $("legend").appendChild(document.createElement("span"));
  nudge.innerHTML = `${kbd("KeyH")} ${t("nudge")}`;
  nudge.title = t("A press is one small step");
  setInterval(() => {
    const codes = Object.keys(KEYS).filter((code) => KEYS[code].say);
    nudge.className = control.nudge ? "on" : "";
    [...$("legend").children].slice(0, codes.length).forEach((item, i) => {
      const means = KEYS[codes[i]].means;
      const lit = [...control.down.values()].some((code) => nearestNamed(code)?.means === means);
      item.className = lit ? "on" : page.lease.mine ? "" : "dim";
    });
  }, 50);
}

function nearestNamed(code) { // W carries the legend of W and S
  const codes = Object.keys(KEYS);
  for (let i = codes.indexOf(code); i >= 0; i--) if (KEYS[codes[i]].say) return KEYS[codes[i]];
  return null;
}

async function begin() {
  try {
    page.about = await get("/api/about");
  } catch (error) {
    toast(told(error.message));
    setTimeout(begin, ASK_AGAIN_MS);
    return;
  }
  $("task").textContent = `${page.about.task} · ${page.about.run}`;
  $("to-review").href = at("/review");
  drawArms($("arms"), page.about, { doing, leave: async () => page.lease.mine && post("/api/lease/release") });
  const drawn = page.about.drawn ?? [], first = (name) => (drawn.includes(name) ? drawn.indexOf(name) : drawn.length);
  const order = [...page.about.cameras].sort((a, b) => first(a) - first(b)); // what is drawn for the person first
  page.views = order.map((name) => show(name, page.about.seen[name], $("cameras"), nameOf(name)));
  if (!page.views.length) $("cameras").innerHTML = '<p class="none">This run has no camera.<br>State, labels and learning still work.</p>';
  page.look = new Views(page.about, Object.fromEntries(order.map((name, i) => [name, page.views[i].box])), (chosen) => {
    order.forEach((name, i) => page.views[i].setSlow(name !== chosen && drawn.includes(name)));
  });
  page.touch = new Touch($("touch"));
  control = new Control({ touch: page.touch, seen: () => page.look.seen, onHeard: () => {}, onPad: (name) => toast(name ? t("gamepad: {name}", { name }) : t("the gamepad is gone")) });
  page.control = control;
  drawLegend();
  page.strip = new Strip({ doing, onChosen: drawChosen });
  page.strip.control_hz = page.about.control_hz;
  who(page.about, { doing, onChanged: () => { page.strip.begin(); page.said = null; doing(page.strip.read()); } });
  doing(page.strip.read());
  setInterval(() => { if (!page.strip.reading) doing(page.strip.read()); }, STRIP_MS);
  offerPractice(page.about);
  connect(at("/ws/telemetry"), { onMessage: onTelemetry });
  setInterval(watch, 200);
  addEventListener("click", (event) => { if (event.detail) event.target.closest("button, a, summary")?.blur(); }); // what was clicked does not keep the keys
  $("lease-button").onclick = () => doing(toggleLease());
  $("acknowledge").onclick = () => doing(acknowledge());
  $("ready").onclick = () => doing(ready());
  $("go").onclick = () => doing(ACTIONS.KeyR());
  $("undo").onclick = () => doing(undo());
  $("ready-line").onclick = () => { $("ready-line").blur(); toggleReadiness(); };
  $("mute").onclick = mute;
  $("to-help").onclick = () => { $("to-help").blur(); help(); };
  $("details").open = localStorage.getItem("details") === "open";
  $("details").ontoggle = () => localStorage.setItem("details", $("details").open ? "open" : "");
  $("theme").onclick = () => drawTheme(theme() === "dark" ? "light" : "dark");
  night.onchange = () => drawTheme();
  drawTheme();
  document.querySelectorAll("[data-label]").forEach((b) => { b.onclick = () => doing(label(b.dataset.label, page.strip.chosen)); });
  page.keys = [...Object.keys(KEYS), ...Object.keys(ACTIONS)];
  globalThis.robotRL = page; // for tests and the curious
}

$("hold").onclick = () => doing(ACTIONS.Escape()); // first: it works, whatever fails below
addEventListener("keydown", onKey);
translate(document.body);
begin();
