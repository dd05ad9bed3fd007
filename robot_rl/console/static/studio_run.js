// One run: what it has come to, its log, and what can be done with it. Each action shows its command.

import { t } from "./language.js";
import { get } from "./socket.js";
import { $, bytes, chart, command, warning, duration, el, interval, moment, number, ofAll, percent, send, stateWords, successWords, title, trouble } from "./studio_parts.js";
import { toast } from "./toast.js";

const EVERY_MS = 2000, TYPED_MS = 350;
const GONE = "gone"; // drawn of a run that is there no more

// verb -> what its button says, what it does, and what may be said to it: [key, label, kind, default, options]
const ACTIONS = {
  eval: [t("Evaluate"), t("Measures the newest policy on held-out starts, unaided."), [["episodes", t("episodes of each kind"), "number", 100], ["video", t("film a few of them"), "flag", true]], "policy"],
  deploy: [t("Deploy"), t("Lets the policy work. Words such as robot=ur5e_fzi say where; in lockstep it works in simulation."), [["words", t("words key=value, one in a line"), "lines", "runtime=lockstep"], ["episodes", t("episodes, 0 = until you finish it"), "number", 50], ["stop_after", t("failures in a row after which it stops, 0 = never"), "number", 3]], "policy"],
  export: [t("Export"), t("Writes the episodes for other programs, into the run's folder exports."), [["to", t("format"), "choice", "lerobot", ["lerobot", "mcap", "rerun"]]]],
  report: [t("Write report"), t("Writes report.html again from what is in the folder."), []],
};

const WORDS = { killed: t("It was killed: its process is gone and said nothing of an end."), stopped: t("It was stopped by a person. It can go on where it was."), failed: t("It ended with an error:"), "no result": t("Nobody works on it, and there is no evaluation.") };

export function showRun(side, said, page) {
  const id = said.get("run");
  const body = el("div", { className: "detail" });
  side.append(body);
  let timer, closed = false, drawn = "", parts = [];
  const later = () => { timer = setTimeout(load, document.hidden ? 5 * EVERY_MS : EVERY_MS); };
  const gone = () => { // what was shown of it is true no longer, and nothing can be done with it
    if (drawn !== GONE) body.replaceChildren(el("h2", {}, id), el("p", { className: "word", role: "status" }, t("This run is gone from the folder: it was put away, moved or deleted. What was put away is in the bin.")));
    [drawn, parts] = [GONE, []];
  };
  async function load() {
    clearTimeout(timer);
    if (drawn && $("ask").open) { later(); return; } // it may be about to be put away
    if (drawn === GONE && !page.names.includes(id)) { later(); return; } // the list says when it is back
    try {
      const run = await get(`/api/run?${new URLSearchParams({ id })}`);
      if (closed) return;
      const text = JSON.stringify(run);
      if (text !== drawn && !body.matches(":active")) {
        if (!parts.length) parts = frame(body);
        if (draw(body, parts, run, page, load)) drawn = text;
      }
    } catch (error) {
      if (closed) return;
      if (error.status === 409) gone();
      else if (!drawn) body.replaceChildren(el("h2", {}, id), trouble(error));
    }
    later();
  }
  load();
  return { close() { closed = true; clearTimeout(timer); } };
}

const PARTS = [ // of the view, from top to bottom: each is drawn anew only when it would be another one
  (run) => { const [kind, words] = stateWords(run); return el("div", { className: "top" }, el("h2", {}, title(run)), el("span", { className: `state ${kind}` }, words)); },
  (run) => el("p", { className: "soft id" }, run.id),
  (run) => (run.unfit ? el("div", { className: "word bad" }, t("Its config.yaml cannot be read, so its limits are not known:"), el("pre", { lang: "en" }, run.unfit)) : ""),
  (run) => (run.why || WORDS[run.state] ? el("div", { className: `word ${stateWords(run)[0]}` }, WORDS[run.state] ?? "", run.why ? el("pre", {}, run.why) : "") : ""),
  buttons,
  progress,
  (run) => el("section", { className: "card" },
    el("div", { className: "headline" }, el("b", {}, percent(run.success?.success)), el("div", {}, interval(run.success), el("span", { className: "soft" }, successWords(run.success)))),
    el("div", { className: "figures" }, ...figures(run))),
  (run) => el("section", { className: "card" }, el("h3", {}, t("Success and help in practice")),
    run.curve.length > 1 ? chart([{ name: t("success, last 20 episodes"), points: run.curve, kind: "c0" }, { name: t("driven by a person"), points: run.human_curve, kind: "human" }], t("success and share of human steps over env steps"))
      : el("p", { className: "soft" }, t("No practice episode yet."))),
  mastery, pictures, log, history,
];

function frame(body) { // a place for each part; it has no box of its own
  const parts = PARTS.map((make) => ({ make, box: el("div", { className: "part" }), drawn: "" }));
  body.replaceChildren(...parts.map((part) => part.box));
  return parts;
}

function isUsed(box) { // somebody reads, copies or scrolls in it
  const chosen = getSelection();
  return (!chosen.isCollapsed && chosen.containsNode(box, true)) || box.contains(document.activeElement?.closest("details, pre") ?? null);
}

function draw(body, parts, run, page, again) { // returns whether everything is as the run is
  const scroll = body.parentElement.scrollTop, had = document.activeElement;
  const alike = () => [...body.querySelectorAll("button, a")].filter((x) => x.textContent === had.textContent);
  const place = alike().indexOf(had);
  let whole = true;
  for (const part of parts) {
    const made = part.make(run, page, again) || "", text = made.outerHTML ?? made;
    if (text === part.drawn) continue;
    if (isUsed(part.box)) { whole = false; continue; }
    part.drawn = text;
    part.box.replaceChildren(made);
  }
  body.parentElement.scrollTop = scroll;
  if (document.activeElement !== had) alike()[place]?.focus({ preventScroll: true });
  return whole;
}

function figures(run) {
  const pairs = [
    [t("task"), run.task || "–"], [t("algorithm"), run.algo || "–"], [t("robot, runtime"), [run.robot, run.runtime].filter(Boolean).join(", ") || "–"], [t("seed"), String(run.seed ?? "–")],
    [t("env steps"), stepsOf(run)], [t("episodes"), number(run.episodes)],
    [t("demonstrations"), run.demos[1] == null ? number(run.demos[0]) : ofAll(...run.demos)],
    [t("driven by a person"), percent(run.human)], [t("takeovers"), number(run.takeovers)],
    [t("time at work"), duration(run.worked_s || null)], [t("on disk"), bytes(run.bytes)],
    [t("begun"), run.created ? moment(run.created.replace(/([+-]\d\d)(\d\d)$/, "$1:$2")) : "–"], [t("folder"), run.folder],
  ];
  return pairs.map(([label, value]) => el("div", {}, el("span", {}, label), el("b", {}, value)));
}

function stepsOf({ steps, max_steps: most }) { // the last episode may go beyond the limit
  if (most == null) return number(steps);
  const said = { n: number(steps), all: number(most) };
  return steps < most ? t("{n} of {all} at most", said) : t("{n}, limit {all} reached", said);
}

function progress(run) {
  if (stateWords(run)[0] !== "live" || run.progress == null) return "";
  const left = run.left_s == null ? "" : t("about {time} of practice left", { time: duration(run.left_s) });
  return el("section", { className: "card budget" }, el("div", {}, el("b", {}, t("{share} of the practice budget", { share: percent(run.progress) })), el("span", { className: "soft" }, left)),
    el("progress", { max: 1, value: run.progress, "aria-label": t("practice budget used") }),
    run.max_steps == null ? "" : el("small", { className: "soft" }, t("The budget is {n} steps or {time}, whichever comes first; an exam that is passed ends practice sooner.", { n: number(run.max_steps), time: duration(60 * run.max_minutes) })));
}

function mastery(run) {
  const m = run.mastery, rows = [];
  if (run.mastered) rows.push(el("p", {}, t("An exam was passed: the skill is mastered.")));
  else if (!m) return ""; // what an exam asks for is not known
  else if (m.in_exam && m.needed != null) rows.push(
    el("p", {}, t("In an exam. Successes: {won} of {needed}; failures: {failed} of {allowed} that are allowed.", m)),
    el("progress", { max: m.needed, value: m.won, "aria-label": t("exam") }));
  else if (m.alone != null) rows.push(
    el("p", {}, t("{share} of the last 20 episodes succeeded without help; an exam is held from {needed} on.", { share: percent(m.alone), needed: percent(m.alone_needed) })),
    el("progress", { max: m.alone_needed, value: Math.min(m.alone, m.alone_needed), "aria-label": t("episodes without help") }));
  if (!rows.length) return "";
  const held = (m?.exams ?? []).map(([steps, success]) => t("after {n} steps {share}", { n: number(steps), share: percent(success) })).join("; ");
  if (held) rows.push(el("p", { className: "soft" }, t("Exams so far: {held}. Passed is what shows more than {target} with an interval of 95 %.", { held, target: percent(m.target) })));
  return el("section", { className: "card" }, el("h3", {}, t("To mastery")), ...rows);
}

function pictures(run) {
  const query = new URLSearchParams({ id: run.id });
  if (!run.has.first_success) return "";
  return el("section", { className: "card" }, el("h3", {}, t("First success without help")), el("img", { className: "strip", src: `/api/first_success?${query}`, alt: t("six pictures of the first episode that the policy solved alone") }));
}

function log(run) {
  const lines = run.log.lines.map((x) => el("span", { className: x.level }, x.text, "\n"));
  return el("section", { className: "card" }, el("h3", {}, t("Last words")),
    lines.length ? el("pre", { className: "log", tabIndex: 0, "aria-label": t("last lines of the log") }, ...lines) : el("p", { className: "soft" }, t("The studio has no words of it: it was started in a terminal, or this link may only look.")),
    run.log.of ? el("small", { className: "soft" }, run.log.of) : "");
}

function history(run) {
  const items = [];
  for (const e of run.evaluations) {
    const part = e.deterministic ?? {};
    if (part.episodes) items.push(el("li", {}, t("evaluation {when}: {result} ({where})", { when: e.time ?? "", result: ofAll(part.successes, part.episodes), where: e.evaluated_in ?? "" })));
  }
  const commands = run.jobs.length ? run.jobs.map((j) => [j.command, j.running ? t("running") : j.code === 0 ? t("done") : j.code == null ? t("ended") : t("exit code {code}", j)]) : run.command ? [[run.command, t("from a terminal")]] : [];
  return el("section", { className: "card" }, items.length ? el("h3", {}, t("Evaluations")) : "", items.length ? el("ul", { className: "plain" }, ...items) : "",
    el("h3", {}, t("Commands")), ...commands.map(([text, how]) => el("div", {}, el("small", { className: "soft" }, how), command(text))));
}

// --- what can be done -------------------------------------------------------------------------

function buttons(run, page, again) {
  const busy = run.at_work.length > 0, row = el("div", { className: "actions", data: { of: run.paused ? "paused" : run.state } }); // "Go on" is another command then
  const add = (label, press, { className = "", disabled = false, why = "" } = {}) => {
    const button = el("button", { type: "button", className, disabled: disabled || !page.mayAct, title: page.mayAct ? why : t("this link may only look") }, label);
    button.onclick = press;
    row.append(button);
  };
  for (const verb of run.at_work) if (verb !== "report") add(t("Finish {verb}", { verb }), () => finish(run, verb, again), { className: "stop" });
  if (run.paused) add(t("Go on"), () => ask({ verb: "pause", run: run.id, end: true }, t("Go on"), t("Episodes begin again."), [], again), { className: "go" });
  else if (["train", "record"].some((verb) => run.at_work.includes(verb))) add(t("Pause"), () => ask({ verb: "pause", run: run.id }, t("Pause"), t("The episode that runs ends, and no other begins until you press Go on. To stop an arm that moves, open the run's page."), [], again));
  const can_go_on = !busy && ["stopped", "killed", "failed", "no result"].includes(run.state);
  if (can_go_on) add(t("Go on"), () => ask({ run: run.id, again: true, verb: "train" }, t("Go on"), t("The same command goes on where the run stopped."), [], again), { className: "go" });
  add(t("Open its page"), () => open_page(run, "", again), { why: t("the operator's page: watch, take over, label, stop") });
  add(t("Review episodes"), () => open_page(run, "review", again));
  for (const [verb, [label, says, fields, needs]] of Object.entries(ACTIONS)) {
    if (verb === "report" && busy && run.at_work.includes("report")) continue;
    const lacks = needs && !run.has[needs];
    add(label, () => ask({ verb, run: run.id }, label, says, fields, again), { disabled: run.at_work.includes(verb) || lacks, why: lacks ? t("there is no policy yet") : says });
  }
  if (run.has.report) row.append(el("a", { className: "button", href: `/api/report?${new URLSearchParams({ id: run.id })}`, download: "" }, t("Save report")));
  add(t("Put away"), () => put_away(run, again), { disabled: busy, why: busy ? t("finish what works on it first") : t("moves it into the bin; it can be restored") });
  return row;
}

const cancel = (dialog) => el("button", { type: "button", onclick: () => dialog.close() }, t("Cancel")); // no submit: Enter in a field would press it

export function ask(body, label, says, fields, then) { // a dialog that shows the command line before it runs
  const dialog = $("ask"), form = dialog.querySelector("form"), line = el("div"), inputs = {};
  const yes = el("button", { type: "submit", className: "go", disabled: true }, label);
  const rows = fields.map(([key, text, kind, value, options]) => {
    const made = kind === "choice" ? el("select", {}, ...options.map((o) => el("option", { value: o }, o)))
      : kind === "lines" ? el("textarea", { value, rows: 2, spellcheck: false }) : el("input", kind === "flag" ? { type: "checkbox", checked: value } : { type: "number", min: 0, value, required: true });
    inputs[key] = [made, kind];
    return el("label", { className: kind }, el("span", {}, text), made);
  });
  const said = () => ({ ...body, ...Object.fromEntries(Object.entries(inputs).map(([key, [x, kind]]) => [key, kind === "number" ? Number(x.value) : kind === "flag" ? x.checked : kind === "lines" ? x.value.split("\n").map((w) => w.trim()).filter(Boolean) : x.value])) });
  let asked = 0, timer;
  const check = async () => {
    const mine = ++asked;
    yes.disabled = true;
    try {
      const plan = await send("/api/plan", said());
      if (mine !== asked) return;
      line.replaceChildren(command(plan.command), warning(plan));
      yes.disabled = false;
    } catch (error) { if (mine === asked) line.replaceChildren(trouble(error)); }
  };
  form.replaceChildren(el("h2", { id: "ask-title" }, label), el("p", {}, says), ...rows, line,
    el("div", { className: "row" }, cancel(dialog), yes));
  form.oninput = () => { // what is on its way is of other words
    clearTimeout(timer);
    asked += 1;
    yes.disabled = true;
    timer = setTimeout(check, TYPED_MS);
  };
  form.onsubmit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try { await send("/api/start", said()); } catch (error) { line.replaceChildren(trouble(error)); return; }
    dialog.close();
    toast(t("{what}: started", { what: label }));
    then();
  };
  line.replaceChildren(el("p", { className: "soft" }, t("checking …")));
  dialog.showModal();
  check();
}

function confirm(label, says, press) {
  const dialog = $("ask"), form = dialog.querySelector("form"), problem = el("div");
  const yes = el("button", { type: "submit", className: "stop" }, label);
  form.oninput = null;
  form.replaceChildren(el("h2", { id: "ask-title" }, label), el("p", {}, says), problem, el("div", { className: "row" }, cancel(dialog), yes));
  form.onsubmit = async (event) => {
    event.preventDefault();
    try { await press(); dialog.close(); } catch (error) { problem.replaceChildren(trouble(error)); }
  };
  dialog.showModal();
}

const finish = (run, verb, again) => confirm(t("Finish {verb}", { verb }), t("{verb} of {run} ends as if Ctrl-C had been pressed. What was recorded is safe, and the same command goes on later.", { verb, run: run.id }), async () => {
  await send("/api/finish", { run: run.id, verb });
  toast(t("{verb} of {run} was asked to end", { verb, run: run.id }));
  again();
});

const put_away = (run) => confirm(t("Put away"), t("{run} is moved into the bin, from which it can be restored. Nothing is deleted.", { run: run.id }), async () => {
  await send("/api/put_away", { run: run.id });
  toast(t("{run} is in the bin", { run: run.id }));
  location.hash = "view=bin";
});

async function open_page(run, which) {
  const dialog = $("ask"), form = dialog.querySelector("form"), what = el("div", {}, el("p", {}, t("The page is starting; that takes some seconds …")));
  form.oninput = form.onsubmit = null;
  form.replaceChildren(el("h2", { id: "ask-title" }, which ? t("Review episodes") : t("The run's own page")), command(run.page_command), what, el("div", { className: "row" }, el("button", { type: "submit" }, t("Close"))));
  dialog.showModal();
  try {
    const { link } = await send("/api/console", { run: run.id, page: which });
    // under the name of this page: a browser withholds a strict cookie from who comes from another host
    const address = Object.assign(new URL(link), { hostname: location.hostname });
    const way = el("a", { className: "button go", href: address, target: "_blank", rel: "noopener" }, t("Open it"));
    way.onclick = () => dialog.close();
    what.replaceChildren(el("p", {}, t("The page is served until the studio ends. This link works once."), " ", location.protocol === "https:" ? "" : t("From another machine its port needs a tunnel, too.")), way);
    way.focus();
  } catch (error) { what.replaceChildren(trouble(error)); }
}
