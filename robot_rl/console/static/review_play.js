// Playing an episode: at the speed of the robot, or slower or faster, as the person has chosen before.

import { t } from "./language.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const PLACE = "review-speed";

export function makePlayer(button, choice, { at, last, hz, isShown, goto }) {
  const player = { speed: SPEEDS.find((speed) => String(speed) === localStorage.getItem(PLACE)) ?? 1, from: null };
  choice.replaceChildren(...SPEEDS.map((speed) => new Option(`${speed}×`, speed)));
  choice.value = player.speed;

  function begin() { player.from = { step: at(), ms: performance.now() }; }

  function show() {
    button.textContent = player.from ? "❚❚" : "▶";
    button.setAttribute("aria-label", player.from ? t("pause") : t("play"));
  }

  function tick() {
    if (!player.from) return;
    const due = player.from.step + Math.floor(((performance.now() - player.from.ms) / 1000) * hz() * player.speed);
    if (due > at() && isShown()) goto(Math.min(due, last())); // pictures that come late are passed over
    if (at() >= last()) stop();
    else requestAnimationFrame(tick);
  }

  function stop() { player.from = null; show(); }

  function toggle() {
    if (player.from) { stop(); return; }
    if (at() >= last()) goto(0);
    begin();
    show();
    requestAnimationFrame(tick);
  }

  function set(speed) {
    player.speed = speed;
    choice.value = speed;
    localStorage.setItem(PLACE, speed);
    if (player.from) begin();
  }

  const beside = (by) => set(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(player.speed) + by))]);
  button.onclick = toggle;
  choice.onchange = () => set(Number(choice.value));
  show();
  return { toggle, stop, slower: () => beside(-1), faster: () => beside(1), moved: () => player.from && begin() };
}
