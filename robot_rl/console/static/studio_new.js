// Begin a run: every value of an experiment, with what the source says about it, and the command line.

import { t } from "./language.js";
import { get } from "./socket.js";
import { command, el, send, trouble, warning } from "./studio_parts.js";
import { toast } from "./toast.js";

const TYPED_MS = 500;
const PLAIN = /^[\w./:@+-]*$/; // text that needs no quotes on the command line
const fresh = (experiment) => ({ verb: "train", experiment, chosen: new Map(), values: new Map(), more: "", find: "", open: null });
let kept = null; // the form's state: what a person has typed is there again, until a run was started from it
const shown = (value) => (value == null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function showNew(side, said, page) {
  const asked_for = said.get("experiment");
  if (!kept || (asked_for && asked_for !== kept.experiment)) kept = fresh(asked_for ?? "reach");
  const state = kept;
  const pick = el("select", { id: "experiment" }), tells = el("p", { className: "soft", lang: "en" }), fields = el("div", { className: "sections" });
  const line = el("div", { role: "status" }), start = el("button", { type: "button", className: "go", disabled: true }, t("Start"));
  const find = el("input", { type: "search", value: state.find, placeholder: t("find a key: steps, gamma, camera …"), "aria-label": t("find a key") });
  const more = el("textarea", { rows: 2, value: state.more, spellcheck: false, placeholder: t("key=value, one in a line") });
  const verb = el("select", {}, el("option", { value: "train" }, t("train: demonstrations, practice, evaluation")), el("option", { value: "record" }, t("record: demonstrations only")));
  verb.value = state.verb;
  side.append(el("h2", {}, t("Start a run")), el("div", { className: "new" },
    el("div", { className: "form" },
      el("div", { className: "picks" }, el("label", {}, el("span", {}, t("experiment")), pick), el("label", {}, el("span", {}, t("what to do")), verb)), tells,
      el("div", { className: "find" }, find), fields,
      el("label", { className: "lines" }, el("span", {}, t("more words")), more)),
    el("div", { className: "plan card" }, el("h3", {}, t("This will run")), line, start, el("p", { className: "soft" }, t("It goes on when this page, the studio or the terminal is closed.")))));

  const heads = () => [`experiment=${state.experiment}`, ...[...state.chosen].map(([key, value]) => `${key}=${value}`)];
  const words = () => [...heads(), ...[...state.values].map(([key, { word }]) => `${key}=${word}`), ...state.more.split("\n").map((w) => w.trim()).filter(Boolean)];
  let asked = 0, loads = 0, timer, closed = false, planned = null;
  const stale = () => { clearTimeout(timer); asked += 1; start.disabled = true; }; // what is on its way is of other words
  const soon = () => { stale(); timer = setTimeout(check, TYPED_MS); };

  async function check() { // composed and checked by the server; nothing runs
    stale();
    const mine = asked;
    try {
      const plan = await send("/api/plan", { verb: state.verb, words: words() });
      if (mine !== asked || closed) return;
      planned = plan.run; // what is shown is what runs
      line.replaceChildren(command(plan.command), warning(plan));
      start.disabled = !page.mayAct;
    } catch (error) { if (mine === asked && !closed) line.replaceChildren(trouble(error)); }
  }

  async function load() { // the form of this experiment, with these choices
    stale();
    const mine = ++loads;
    line.replaceChildren(el("p", { className: "soft" }, t("composing …")));
    try {
      const form = await send("/api/form", { words: heads() });
      if (mine !== loads || closed) return;
      for (const key of state.values.keys()) if (!knows(form, key)) state.values.delete(key);
      drawForm(form);
      check();
    } catch (error) { if (mine === loads && !closed) line.replaceChildren(trouble(error)); }
  }

  const knows = (form, key) => form.top.some((f) => f.key === key) || form.sections.some((s) => s.fields.some((f) => f.key === key));

  function drawForm(form) {
    const before = state.open;
    const top = el("details", { open: before?.has("run") ?? true, data: { name: "run" } }, el("summary", {}, el("b", {}, "run"), " ", t("seed and runtime")), el("div", { className: "fields-of" }, ...form.top.map((f) => input(f, ""))));
    fields.replaceChildren(top, ...form.sections.filter((s) => s.fields.length || s.choice).map((section) => {
      const choice = section.choice ? choose(section.name, section.choice) : "";
      return el("details", { open: before?.has(section.name) ?? section.name === "train", data: { name: section.name } },
        el("summary", {}, el("b", {}, section.name), " ", el("span", { lang: "en" }, section.about)), choice, el("div", { className: "fields-of" }, ...section.fields.map((f) => input(f, `${section.name}.`))));
    }));
    narrow();
  }

  function choose(name, { value, options }) {
    const select = el("select", {}, ...(options.includes(value) ? [] : [el("option", { value }, value)]), ...options.map((o) => el("option", { value: o, selected: o === (state.chosen.get(name) ?? value) }, o)));
    select.onchange = () => { state.chosen.set(name, select.value); load(); };
    return el("label", { className: "choice" }, el("span", {}, `${name}=`), select);
  }

  function input(field, prefix) {
    const before = shown(field.value), now = state.values.get(field.key)?.text;
    const made = field.kind === "flag" || field.kind === "choice"
      ? el("select", {}, ...(field.kind === "flag" ? ["true", "false"] : field.options).map((o) => el("option", { value: o, selected: o === (now ?? before) }, o)))
      : el("input", { type: "text", value: now ?? before, spellcheck: false, inputMode: field.kind === "int" ? "numeric" : field.kind === "float" ? "decimal" : "text" });
    const box = el("label", { className: `field${now == null ? "" : " changed"}`, data: { key: `${field.key} ${field.about}`.toLowerCase() } },
      el("span", { className: "name" }, field.key.startsWith(prefix) ? field.key.slice(prefix.length) : field.key), made, field.about ? el("small", { lang: "en" }, field.about) : "");
    made.oninput = () => {
      const text = made.value, same = text === before;
      box.classList.toggle("changed", !same);
      if (same) state.values.delete(field.key);
      else state.values.set(field.key, { text, word: field.kind === "text" && !PLAIN.test(text) ? JSON.stringify(text) : text });
      soon();
    };
    return box;
  }

  function narrow() { // only the fields that the words are in
    const wanted = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    for (const section of fields.children) {
      let some = false;
      for (const box of section.querySelectorAll(".field")) {
        box.hidden = !wanted.every((word) => box.dataset.key.includes(word));
        some ||= !box.hidden;
      }
      section.hidden = wanted.length > 0 && !some;
      if (wanted.length && some) section.open = true;
    }
  }

  fields.addEventListener("toggle", () => { // of its sections; what narrows them opens some, too
    if (!closed && !state.find) state.open = new Set([...fields.querySelectorAll("details[open]")].map((d) => d.dataset.name));
  }, true);
  find.oninput = () => { state.find = find.value.trim(); narrow(); };
  more.oninput = () => { state.more = more.value; soon(); };
  verb.onchange = () => { state.verb = verb.value; check(); };
  pick.onchange = () => { state.experiment = pick.value; state.chosen.clear(); state.values.clear(); told(); load(); };
  start.onclick = async () => {
    start.disabled = true;
    try {
      const job = await send("/api/start", { verb: state.verb, words: words(), name: planned });
      kept = null; // the next one begins anew
      toast(t("{verb} is starting: {run}", job));
      location.hash = "";
    } catch (error) { line.replaceChildren(trouble(error)); }
  };
  let experiments = [];
  const told = () => { tells.textContent = experiments.find((x) => x.name === state.experiment)?.about ?? ""; };
  get("/api/experiments").then((found) => {
    experiments = found;
    pick.replaceChildren(...found.map((x) => el("option", { value: x.name, selected: x.name === state.experiment }, x.name)));
    told();
    return load();
  }).catch((error) => line.replaceChildren(trouble(error)));
  return { close() { closed = true; clearTimeout(timer); } };
}
