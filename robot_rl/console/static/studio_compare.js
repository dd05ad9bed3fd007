// Runs beside each other: success with its interval, help, steps and time; curves; keys that differ; films.

import { t } from "./language.js";
import { get } from "./socket.js";
import { chart, decimal, duration, el, interval, number, ofAll, percent, place, stateWords, successWords, title, trouble } from "./studio_parts.js";

const PLAY_MS = 100;
const part = (x) => (x?.episodes ? ofAll(x.successes, x.episodes) : "–");

const ROWS = [
  [t("state"), (run) => stateWords(run)[1]],
  [t("success"), (run) => el("span", {}, interval(run.success), el("b", {}, percent(run.success?.success)), el("small", {}, successWords(run.success)))],
  [t("success with noise"), (run) => part(run.stochastic)],
  [t("time of a success"), (run) => (run.cycle_s == null ? "–" : `${decimal(run.cycle_s)} s`)],
  [t("env steps"), (run) => number(run.steps)],
  [t("steps to mastery"), (run) => (run.mastered_steps ? number(run.mastered_steps) : "–")],
  [t("demonstrations"), (run) => number(run.demos)],
  [t("driven by a person"), (run) => `${percent(run.human)}, ${run.human_steps === 1 ? t("1 step") : t("{n} steps", { n: number(run.human_steps) })}`],
  [t("takeovers"), (run) => number(run.takeovers)],
  [t("time at work"), (run) => duration(run.worked_s || null)],
  [t("time to the evaluation"), (run) => (run.train_s == null ? "–" : duration(run.train_s))],
];

export function showCompare(side, said) {
  const body = el("div", { className: "compare" }), films = [];
  side.append(el("h2", {}, t("Runs beside each other")), body);
  let closed = false, playing;
  const names = said.getAll("id");
  get(`/api/compare?${new URLSearchParams(names.map((id) => ["id", id]))}`).then(({ runs, differ }) => {
    if (closed) return;
    const head = runs.map((run, i) => el("th", { scope: "col" }, el("a", { className: `tag c${i}`, href: `#${new URLSearchParams({ run: run.id })}` }, title(run)), el("small", {}, place(run))));
    const table = (rows, label) => el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), ...head.map((h) => h.cloneNode(true)))), el("tbody", {}, ...rows)));
    body.replaceChildren(
      el("section", { className: "card" }, table(ROWS.map(([label, value]) => el("tr", {}, el("th", { scope: "row" }, label), ...runs.map((run) => el("td", {}, value(run))))), t("figures"))),
      el("section", { className: "card" }, el("h3", {}, t("Success over the last 20 practice episodes")), chart(runs.map((run, i) => ({ name: `${title(run)} ${place(run)}`, points: run.curve, kind: `c${i}` })), t("success of each run over env steps"))),
      el("section", { className: "card" }, el("h3", {}, t("Driven by a person")), chart(runs.map((run, i) => ({ name: `${title(run)} ${place(run)}`, points: run.human_curve, kind: `c${i}` })), t("share of human steps of each run over env steps"))),
      filmsOf(runs),
      el("section", { className: "card" }, el("h3", {}, t("Keys that differ")), differ.length
        ? table(differ.map(({ key, values }) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, key)), ...values.map((v) => el("td", {}, el("code", {}, v))))), t("keys that differ"))
        : el("p", { className: "soft" }, t("None: the runs have the same configuration."))),
    );
  }).catch((error) => body.replaceChildren(trouble(error)));

  function filmsOf(runs) {
    if (!runs.some((run) => run.has_film)) return el("section", { className: "card" }, el("h3", {}, t("The last evaluation")), el("p", { className: "soft" }, t("None of these runs has filmed its evaluation (train.video, or Evaluate with a film).")));
    const at = el("input", { type: "range", min: 0, max: 1000, value: 0, "aria-label": t("place in the films") });
    const play = el("button", { type: "button" }, t("Play"));
    const figures = runs.map((run, i) => {
      const img = el("img", { alt: t("evaluation of {run}", { run: run.id }) });
      if (run.has_film) films.push({ img, id: run.id });
      return el("figure", {}, run.has_film ? img : el("p", { className: "none" }, t("no film")), el("figcaption", { className: `tag c${i}` }, `${title(run)} ${place(run)}`));
    });
    const show = () => { for (const { img, id } of films) if (img.complete || !img.src) img.src = `/api/film/picture?${new URLSearchParams({ id, at: at.value / 1000 })}`; };
    at.oninput = show;
    const stop = () => { clearInterval(playing); playing = null; play.textContent = t("Play"); };
    play.onclick = () => {
      if (playing) { stop(); return; }
      play.textContent = t("Pause");
      if (Number(at.value) >= 1000) at.value = 0;
      playing = setInterval(() => { at.value = Number(at.value) + 1000 / 150; show(); if (Number(at.value) >= 1000) stop(); }, PLAY_MS);
    };
    show();
    return el("section", { className: "card" }, el("h3", {}, t("The last evaluation")), el("div", { className: "films" }, ...figures), el("div", { className: "row play" }, play, at));
  }
  return { close() { closed = true; clearInterval(playing); } };
}
