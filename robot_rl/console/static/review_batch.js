// Several episodes at once: chosen in the list, excluded together, taken back together.

import { t, told } from "./language.js";
import { post } from "./socket.js";
import { toast } from "./toast.js";

const MOST = 500; // as the server takes at once
const counted = (n) => (n === 1 ? t("1 episode") : t("{n} episodes", { n }));

export function makeBatch(box, { shown, changed }) {
  const part = (name) => box.querySelector(`#${name}`);
  const batch = { chosen: new Set(), from: null, undo: [] };

  function show() {
    const all = shown(), count = batch.chosen.size, there = all.filter((e) => batch.chosen.has(e)).length;
    const every = part("choose-all");
    every.checked = all.length > 0 && there === all.length;
    every.indeterminate = there > 0 && there < all.length;
    part("chosen").textContent = !count ? t("choose all") : there < count ? t("{n} chosen, {away} not in this list", { n: count, away: count - there }) : t("{n} chosen", { n: count });
    part("exclude-chosen").disabled = !count;
    part("exclude-chosen").textContent = count ? t("Exclude {n}", { n: count }) : t("Exclude");
    const last = batch.undo.at(-1);
    part("undo-batch").hidden = !last;
    part("undo-batch").textContent = last ? t("Undo: exclude of {episodes}", { episodes: last.count }) : "";
  }

  function choose(index, on, toHere) { // toHere: also all rows between this one and the last one
    const all = shown();
    const [first, last] = toHere && batch.from != null ? [batch.from, index].sort((a, b) => a - b) : [index, index];
    for (const e of all.slice(first, last + 1)) batch.chosen[on ? "add" : "delete"](e);
    batch.from = index;
    show();
    changed([]);
  }

  async function say(body, done) {
    try {
      const answer = await post("/api/labels", body);
      done(answer);
      toast(t("{what}: done", { what: told(answer.said) }));
      await changed(answer.of);
    } catch (error) { toast(error.message); }
    show();
  }

  const exclude = () => {
    const chosen = [...batch.chosen];
    if (!chosen.length) return toast(t("choose episodes first: their boxes in the list, or M"));
    if (chosen.length > MOST) return toast(t("{episodes} are chosen, and {most} are excluded at once at most: filter further", { episodes: counted(chosen.length), most: MOST }));
    return say({ kind: "exclude", of: grouped(chosen) }, ({ of }) => {
      batch.undo.push({ of, count: counted(chosen.length) });
      batch.chosen.clear();
    });
  };
  const undo = () => {
    const last = batch.undo.at(-1);
    return last ? say({ kind: "undo", of: last.of }, () => batch.undo.pop()) : toast(t("no episodes were excluded together since this page was opened"));
  };

  part("choose-all").onchange = (event) => {
    for (const e of shown()) batch.chosen[event.target.checked ? "add" : "delete"](e);
    show();
    changed([]);
  };
  part("exclude-chosen").onclick = exclude;
  part("undo-batch").onclick = undo;
  return { show, choose, exclude, undo, has: (e) => batch.chosen.has(e), filtered: () => { batch.from = null; show(); } };
}

function grouped(episodes) { // as the server reads them: by run and actor
  const groups = new Map();
  for (const { run, actor, episode } of episodes) {
    const name = JSON.stringify([run, actor]);
    if (!groups.has(name)) groups.set(name, { run, actor, episodes: [] });
    groups.get(name).episodes.push(episode);
  }
  return [...groups.values()];
}
