// Which episodes the list shows, and in which order: filters that combine, and live in the address, so that a link leads to the same list.

import { t, told } from "./language.js";
import { OUTCOMES, outcome } from "./outcome.js";

export const leftOut = (e) => e.review.excluded && !e.review.neutral;
export const looked = (e) => e.review.success != null || e.review.excluded; // neutral episodes are excluded, so they count as looked at
const differ = (e) => new Set(Object.values(e.voices)).size > 1;
const disagree = (e) => (looked(e) ? e.review.success != null && e.success != null && e.review.success !== e.success : differ(e));
const DRIVERS = { policy: "policy only", human: "with human-driven steps", seat: "somebody in the seat", script: "helped without a seat", correction: "correction", recovery: "recovery", demo: "demo" };
const atSeat = (e) => Object.keys(e.drove).length > 0; // as the console has seen it
const DROVE = { // beside the drivers that steps name
  human: (e) => e.human_steps > 0, policy: (e) => e.steps > 0 && !e.human_steps,
  seat: atSeat, script: (e) => e.human_steps > 0 && !atSeat(e),
};
const NOBODY = "-"; // no author's name: they begin with a letter

const TESTS = { // what an episode must be for a filter that is set
  number: (e, text) => text.split(/[\s,]+/).filter(Boolean).some((term) => isNumbered(e.episode, term)),
  purpose: (e, purpose) => e.purpose === purpose,
  outcome: (e, word) => outcome(e) === word,
  driver: (e, driver) => DROVE[driver]?.(e) ?? (e.drivers.includes(driver) || driver in e.drove),
  author: (e, author) => (author === NOBODY ? !e.authors.length : e.authors.includes(author)),
  disagree,
  order: () => true,
};

function isNumbered(number, term) { // "12": begins with 12; "40-60": from 40 to 60
  const range = term.match(/^(\d+)-(\d+)$/);
  return range ? number >= Number(range[1]) && number <= Number(range[2]) : String(number).startsWith(term);
}

const passes = (chosen) => {
  const set = Object.entries(TESTS).filter(([name]) => chosen[name]);
  return (e) => set.every(([name, test]) => test(e, chosen[name]));
};

const agreement = (e) => e.compatible ?? 2; // those that nobody has judged come last
const ordered = (list, worst) => (worst ? list.toSorted((a, b) => agreement(a) - agreement(b)) : list);

export const address = () => new URLSearchParams(location.hash.slice(1));

export function makeFilters(box, changed) { // box: the fields, [data-filter]; changed() is called when a person sets one
  const fields = Object.fromEntries([...box.querySelectorAll("[data-filter]")].map((field) => [field.dataset.filter, field]));
  const chosen = Object.fromEntries(Object.keys(TESTS).map((name) => [name, ""]));
  const clear = box.querySelector("#clear");

  function show() {
    for (const [name, field] of Object.entries(fields)) {
      if (field.tagName === "BUTTON") field.setAttribute("aria-pressed", Boolean(chosen[name]));
      else {
        if (field.tagName === "SELECT" && ![...field.options].some((o) => o.value === chosen[name])) field.add(new Option(chosen[name], chosen[name]));
        if (field.value.trim() !== chosen[name]) field.value = chosen[name]; // a space that is being typed stays
        field.classList.toggle("set", Boolean(chosen[name]));
      }
    }
    clear.disabled = !Object.values(chosen).some(Boolean);
  }

  function set(name, value) {
    chosen[name] = value;
    show();
    changed();
  }

  function offer(name, options) { // [value, words] beside "any"
    const field = fields[name];
    field.replaceChildren(field.options[0], ...options.map(([value, words]) => new Option(words, value)));
  }

  for (const [name, field] of Object.entries(fields)) {
    if (field.tagName === "BUTTON") field.onclick = () => set(name, chosen[name] ? "" : "yes");
    else field.oninput = () => set(name, field.value.trim());
  }
  clear.onclick = () => {
    for (const name of Object.keys(chosen)) chosen[name] = "";
    show();
    changed();
  };

  return {
    of: (list) => ordered(list.filter(passes(chosen)), chosen.order),
    offerAll(list) { // what there is to choose from
      const distinct = (values) => [...new Set(values)].sort().map((word) => [word, told(word)]);
      offer("purpose", distinct(list.map((e) => e.purpose)));
      offer("outcome", Object.entries(OUTCOMES).map(([word, [, words]]) => [word, t(words)]));
      const people = [...new Set(list.flatMap((e) => Object.keys(e.drove)))].sort().map((name) => [name, name]);
      offer("driver", [...Object.entries(DRIVERS).map(([driver, words]) => [driver, t(words)]), ...people]);
      fields.order.hidden = !list.some((e) => e.compatible != null);
      offer("author", [[NOBODY, t("nobody")], ...distinct(list.flatMap((e) => e.authors))]);
      show();
    },
    read() { // from the address
      const asked = address();
      for (const name of Object.keys(chosen)) chosen[name] = asked.get(name) ?? "";
      show();
    },
    write(words) { // into `words` of an address
      for (const [name, value] of Object.entries(chosen)) if (value) words.set(name, value);
    },
  };
}
