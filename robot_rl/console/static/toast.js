// Shows an error or a short message on top of the page for some seconds.

const SHOWN_MS = 5000;
let timer;

export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { box.hidden = true; }, SHOWN_MS);
}
