// The newest episodes at a glance, one to choose and to say something about, and what this person did in their shift.

import { number, t } from "./language.js";
import { OUTCOMES, outcome } from "./outcome.js";
import { get, post } from "./socket.js";

const $ = (id) => document.getElementById(id);
const CHOSEN_MS = 30000; // then the labels are about the newest episode again
const READ_MS = 10000; // of a long run it takes a while
const SINCE = "shift since ms", WHO = "operator";

export const personOf = (author) => author.replace(/^operator (?=\D)/, ""); // "operator 2" stays

export function drivers({ drove, human_steps, steps }) {
  const people = Object.keys(drove).map(personOf);
  const share = steps ? Math.round((100 * human_steps) / steps) : 0;
  return share ? t("{who}: {share} % of the steps", { who: people.join(", ") || t("helped"), share }) : t("nobody helped");
}

const same = (a, b) => a && b && a.run === b.run && a.actor === b.actor && a.episode === b.episode;

export class Strip {
  constructor({ doing, onChosen }) {
    this.doing = doing;
    this.onChosen = onChosen; // the episode that labels are about; null: the newest
    this.chosen = null;
    this.until_ms = 0; // when it is the newest again
    this.drawn = "";
    this.since_ms = Number(localStorage.getItem(SINCE)) || this.begin();
    $("strip-newest").onclick = () => { $("strip-newest").blur(); this.choose(null); };
    $("note").onsubmit = (event) => { event.preventDefault(); doing(this.note()); };
    $("note-text").oninput = () => this.extend();
    setInterval(() => { if (this.chosen && performance.now() > this.until_ms && !$("note").contains(document.activeElement)) this.choose(null); }, 500);
  }

  begin() { // a shift
    const now_ms = Date.now();
    localStorage.setItem(SINCE, now_ms);
    return (this.since_ms = now_ms);
  }

  async read() {
    this.reading = true;
    const told = await get(`/api/strip?since_ns=${this.since_ms}000000`, READ_MS).catch(() => null);
    this.reading = false;
    if (!told) return; // the next answer may come
    this.draw(told.episodes);
    this.drawTotals(told.totals);
  }

  draw(episodes) {
    const drawn = JSON.stringify([episodes, this.chosen]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.episodes = episodes;
    $("episodes").replaceChildren(...episodes.map((episode) => this.cell(episode)));
    const chosen = episodes.find((episode) => same(episode, this.chosen));
    $("notes").replaceChildren(...(chosen?.notes ?? []).map((n) => Object.assign(document.createElement("li"), { textContent: `${personOf(n.author)}: ${n.text}` })));
  }

  cell(episode) {
    const cell = document.createElement("button"), word = outcome(episode), [mark, what] = OUTCOMES[word], share = document.createElement("i");
    cell.type = "button";
    cell.className = word;
    cell.dataset.episode = episode.episode;
    cell.setAttribute("aria-pressed", Boolean(same(episode, this.chosen)));
    const said = t("episode {n}, {purpose}: {what}; {who}", { n: episode.episode, purpose: t(episode.purpose), what: t(what), who: drivers(episode) });
    cell.setAttribute("aria-label", said);
    cell.title = [said, ...episode.notes.map((n) => `${personOf(n.author)}: ${n.text}`)].join("\n");
    cell.textContent = mark;
    if (episode.notes.length) cell.classList.add("noted");
    share.style.width = `${episode.steps ? (100 * episode.human_steps) / episode.steps : 0}%`;
    cell.append(share);
    cell.onclick = () => { cell.blur(); this.choose(same(episode, this.chosen) ? null : episode); };
    return cell;
  }

  extend() { this.until_ms = performance.now() + CHOSEN_MS; }

  choose(episode) {
    const { run, actor, episode: number } = episode ?? {};
    this.chosen = episode && { run, actor, episode: number };
    this.extend();
    $("note").hidden = $("strip-newest").hidden = !episode;
    $("note-text").value = "";
    if (this.episodes) this.draw(this.episodes);
    this.onChosen(this.chosen);
  }

  async note() {
    await post("/api/note", { ...this.chosen, text: $("note-text").value });
    $("note-text").value = "";
    this.extend(); // the note is seen
    if ($("note").contains(document.activeElement)) document.activeElement.blur();
    await this.read();
  }

  drawTotals({ episodes, successes, steps }) {
    const since = new Date(this.since_ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    const minutes = steps / this.control_hz / 60;
    $("totals").textContent = t("since {since}: {episodes} driven, {successes} succeeded, {minutes} min", { since, episodes, successes, minutes: number(minutes, 1) });
  }
}

// who is at this page: asked for once in a browser, changed by a press when a shift is handed over
export function who(about, { doing, onChanged }) {
  const dialog = $("who"), tell = (name) => { about.you = name; $("you").textContent = name; };
  tell(about.you);
  const say = async (name, remember) => {
    tell((await post("/api/name", { name })).you);
    if (remember) { localStorage.setItem(WHO, name); onChanged(); }
  };
  const before = localStorage.getItem(WHO);
  if (before && before !== about.you && /^(operator|observer) \d+$/.test(about.you)) say(before, false).catch(() => localStorage.removeItem(WHO));
  $("you").onclick = () => {
    $("you").blur();
    $("who-name").value = localStorage.getItem(WHO) ?? "";
    dialog.show(); // not as a modal one, under which nobody could press hold
    $("who-name").focus();
  };
  $("who-cancel").onclick = () => dialog.close();
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    doing(say($("who-name").value, true).then(() => dialog.close()));
  };
}
