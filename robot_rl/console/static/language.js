// The language of the page: one file each in lang/, from the English text to the other one. What nodes, errors and
// logs say stays English, unless it is one of the texts in the file.

const KEPT = "language";
const LANGUAGES = { en: "English", de: "Deutsch" };
const wanted = localStorage.getItem(KEPT) ?? navigator.language.slice(0, 2);
export const language = wanted in LANGUAGES ? wanted : "en";
const words = language === "en" ? null : await fetch(`/static/lang/${language}.json`, { signal: AbortSignal.timeout(5000) }).then((answer) => answer.json()).catch(() => null);
export const missing = new Set(); // texts that the file lacks, for its test
document.documentElement.lang = words ? language : "en";

// t("{who} has the seat", { who: "Ada" })
export function t(text, values = {}) {
  if (words && text && !(text in words)) missing.add(text);
  return (words?.[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// What the robot side says: in this language where there is a text for it; "state_lost: ..." as "state lost: ...".
export const told = (text) => words?.[text] ?? text?.replace(/^[a-z]+(_[a-z]+)+(?=:)/, (rule) => rule.replaceAll("_", " "));

export const number = (value, digits = 0) => (value == null ? "-" : value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }));

function choose(name) {
  localStorage.setItem(KEPT, name);
  location.reload();
}

export const others = () => Object.entries(LANGUAGES).filter(([code]) => code !== language).map(([code, name]) => { // a button for each
  const button = Object.assign(document.createElement("button"), { type: "button", lang: code, textContent: name });
  button.onclick = () => choose(code);
  return button;
});

export function translate(root) { // what stands in the HTML
  if (!words) return;
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const text = node.data.trim();
    if (/[a-z]{2}/i.test(text) && !node.parentElement.closest("kbd, code, script, style, svg")) node.data = node.data.replace(text, t(text.replaceAll(/\s+/g, " ")));
  }
  for (const name of ["title", "aria-label", "placeholder"]) {
    for (const item of root.querySelectorAll(`[${name}]`)) {
      if (/[a-z]{2}/i.test(item.getAttribute(name))) item.setAttribute(name, t(item.getAttribute(name)));
    }
  }
}
