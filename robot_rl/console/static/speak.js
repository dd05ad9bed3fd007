// Says aloud what a person must not miss while they look at the robot. Off until somebody turns it on.

const KEPT = "voice";
let on = localStorage.getItem(KEPT) === "on";

export const isOn = () => on;
export const canSpeak = () => "speechSynthesis" in globalThis;

export function turn(to) {
  on = to;
  localStorage.setItem(KEPT, on ? "on" : "");
  if (!on && canSpeak()) speechSynthesis.cancel();
}

export function speak(text) {
  if (!on || !text || !canSpeak()) return;
  speechSynthesis.cancel(); // what was said before is not so any more
  speechSynthesis.speak(Object.assign(new SpeechSynthesisUtterance(text), { lang: document.documentElement.lang }));
}
