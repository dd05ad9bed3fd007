// The card "Deployment": what a policy at work has come to; and the picture by which a scene is restored.

import { number, t } from "./language.js";

const $ = (id) => document.getElementById(id);
const made = (tag, text, name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });
const percent = (v, digits = 0) => (v == null ? "-" : `${number(100 * v, digits)} %`);
const seconds = (v) => (v == null ? "-" : v < 90 ? `${number(v, 1)} s` : v < 5400 ? `${number(v / 60)} min` : `${number(v / 3600, 1)} h`);
const shown = { failed: "", scene: "", figures: null };

const FIGURES = [
  ["episodes", (f) => number(f.episodes)], ["unlabelled", (f) => number(f.unlabelled)],
  ["cycle, median", (f) => seconds(f.cycle_time_s_median)], ["cycle, p90", (f) => seconds(f.cycle_time_s_p90)],
  ["without help", (f) => percent(f.unaided_success)], ["takeovers", (f) => number(f.interventions)],
  ["steps alone", (f) => percent(f.autonomy_steps, 1)], ["episodes alone", (f) => percent(f.autonomy_episodes)],
  ["between takeovers", (f) => seconds(f.mtbi_s)], ["failures in a row", (f) => number(f.failures_in_a_row)],
];

// figures: of the run; about: of the page; away: something else needs the room. Returns whether a policy is at work.
export function drawDeployment(figures, about, away) {
  const working = ["deployment", "comparison"].includes(figures?.state);
  const told = figures?.state === "deployment";
  $("deploy").hidden = !told || away;
  if (!told || figures === shown.figures) return working;
  shown.figures = figures; // a new object for each line
  const f = Object.fromEntries(Object.entries(figures).filter(([k]) => k.startsWith("deploy/")).map(([k, v]) => [k.slice(7), v]));
  $("deploy-success").textContent = percent(f.success);
  $("deploy-interval").textContent = f.labelled
    ? t("{n} of {all} (95 %: {low} to {high})", { n: number(f.successes), all: number(f.labelled), low: percent(f.success_low), high: percent(f.success_high) }) : t("no episode has been judged yet");
  $("deploy-range").style.left = `${100 * (f.success_low ?? 0)}%`;
  $("deploy-range").style.right = `${100 * (1 - (f.success_high ?? 1))}%`;
  $("deploy-dot").style.left = `${100 * (f.success ?? 0)}%`;
  $("deploy-dot").hidden = f.success == null;
  const cells = FIGURES.map(([name, value]) => {
    const cell = made("div", "");
    cell.append(made("span", t(name)), made("b", value(f)));
    return cell;
  });
  $("deploy-figures").replaceChildren(...cells);
  if (figures.deploy_failed !== shown.failed) { // pictures are fetched once
    shown.failed = figures.deploy_failed;
    drawFailures(JSON.parse(figures.deploy_failed || "[]"), about);
  }
  return working;
}

function drawFailures(failed, about) {
  const camera = about?.cameras.find((name) => !about.drawn.includes(name));
  const items = failed.map((one) => {
    const item = made("li", ""), words = made("a", ""), key = new URLSearchParams({ run: about.run, actor: "actor-0", episode: one.episode });
    words.href = `/review#${key}`;
    words.target = "_blank";
    words.append(made("b", t("episode {n}", { n: one.episode })), made("span", `${one.reason}, ${one.at.slice(11, 16)} UTC`));
    if (camera) {
      const picture = document.createElement("img");
      picture.alt = `the end of episode ${one.episode}`;
      picture.src = `/api/frame/${encodeURIComponent(camera)}/${one.steps}?${key}`;
      picture.onerror = () => picture.remove(); // of an earlier day: in that day's store
      item.append(picture);
    }
    item.append(words);
    return item;
  });
  $("deploy-failed").replaceChildren(...(items.length ? items : [made("li", t("none"), "none-yet")]));
}

export function drawScene(start, about) { // over the cameras, half transparent, and in the card
  if ((start ?? "") === shown.scene || !about) return;
  shown.scene = start ?? "";
  document.querySelectorAll(".camera img.scene").forEach((old) => old.remove());
  $("scene").hidden = !shown.scene;
  $("scene").replaceChildren();
  if (!shown.scene) return;
  for (const camera of about.cameras.filter((name) => !about.drawn.includes(name))) {
    const address = `/api/scene/${shown.scene}/${encodeURIComponent(camera)}`;
    const figure = made("figure", ""), picture = document.createElement("img"), over = document.createElement("img");
    picture.src = over.src = address;
    picture.alt = `how the scene shall look, camera ${camera}`;
    over.className = "scene";
    over.alt = "";
    figure.append(picture, made("figcaption", t("as it was, {camera}", { camera })));
    $("scene").append(figure);
    document.querySelector(`.camera[data-camera="${CSS.escape(camera)}"]`)?.append(over);
  }
}
