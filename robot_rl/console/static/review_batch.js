// Several episodes at once: chosen in the list, excluded together, taken back together.

import { post } from "./socket.js";
import { toast } from "./toast.js";

const MOST = 500; // as the server takes at once
const counted = (count) => `${count} episode${count === 1 ? "" : "s"}`;

export function makeBatch(box, { shown, changed }) {
  const part = (name) => box.querySelector(`#${name}`);
  const batch = { chosen: new Set(), from: null, undo: [] };

  function show() {
    const all = shown(), count = batch.chosen.size, there = all.filter((e) => batch.chosen.has(e)).length;
    const every = part("choose-all");
    every.checked = all.length > 0 && there === all.length;
    every.indeterminate = there > 0 && there < all.length;
    part("chosen").textContent = count ? `${count} chosen${there < count ? `, ${count - there} not in this list` : ""}` : "choose all";
    part("exclude-chosen").disabled = !count;
    part("exclude-chosen").textContent = count ? `Exclude ${count}` : "Exclude";
    const last = batch.undo.at(-1);
    part("undo-batch").hidden = !last;
    part("undo-batch").textContent = last ? `Undo: exclude of ${last.count}` : "";
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
      toast(`${answer.said}: done`);
      await changed(answer.of);
    } catch (error) { toast(error.message); }
    show();
  }

  const exclude = () => {
    const chosen = [...batch.chosen];
    if (!chosen.length) return toast("choose episodes first: their boxes in the list, or M");
    if (chosen.length > MOST) return toast(`${counted(chosen.length)} are chosen, and ${MOST} are excluded at once at most: filter further`);
    return say({ kind: "exclude", of: grouped(chosen) }, ({ of }) => {
      batch.undo.push({ of, count: counted(chosen.length) });
      batch.chosen.clear();
    });
  };
  const undo = () => {
    const last = batch.undo.at(-1);
    return last ? say({ kind: "undo", of: last.of }, () => batch.undo.pop()) : toast("no episodes were excluded together since this page was opened");
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
