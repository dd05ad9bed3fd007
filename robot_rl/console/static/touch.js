// Two sticks and a pad under the thumbs of a person at a touch screen. A finger on any of them drives, and lifting
// the last one lets go. They are there while this page has the seat.

const CUT_MS = 1000; // from there until the page is told that it is hidden
const REACH = 0.38; // how far a stick goes, as a share of its size

export class Touch {
  constructor(box) {
    this.box = box;
    this.changed = () => {}; // something is pressed or let go: say so at once
    this.fingers = new Map(); // pointer -> what it is on
    this.cut_ms = -Infinity; // when the system took a finger away, as it does before it hides the page
    this.sticks = {}; // id -> [right, up] in [-1, 1]
    for (const stick of box.querySelectorAll(".stick")) this.listen(stick, (event) => this.move(stick, event));
    for (const button of box.querySelectorAll("[data-held]")) this.listen(button);
    this.slow = false; // stays until pressed again: both thumbs are on the sticks
    const slow = box.querySelector("#touch-slow");
    slow.onclick = () => { slow.blur(); this.slow = !this.slow; slow.setAttribute("aria-pressed", this.slow); };
    this.hasTouch = matchMedia("(pointer: coarse)").matches;
    addEventListener("pointerdown", (event) => { if (event.pointerType === "touch") this.hasTouch = true; }, true);
  }

  listen(item, moved = () => {}) {
    item.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      item.setPointerCapture(event.pointerId);
      this.fingers.set(event.pointerId, item);
      moved(event);
      this.draw(item);
    });
    item.addEventListener("pointermove", (event) => { if (this.fingers.get(event.pointerId) === item) moved(event); });
    item.addEventListener("pointercancel", (event) => { if (this.fingers.has(event.pointerId)) this.cut_ms = performance.now(); });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) item.addEventListener(end, (event) => this.lift(event.pointerId));
    item.addEventListener("contextmenu", (event) => event.preventDefault()); // a long press is no question
  }

  move(stick, event) {
    const { x, y, width, height } = stick.getBoundingClientRect(), reach = REACH * width;
    const way = [event.clientX - x - width / 2, event.clientY - y - height / 2];
    const length = Math.hypot(...way), share = Math.min(1, length / reach) / (length || 1);
    this.sticks[stick.id] = [way[0] * share, -way[1] * share];
    stick.firstElementChild.style.transform = `translate(${way[0] * share * reach}px, ${way[1] * share * reach}px)`;
  }

  lift(pointer) {
    const item = this.fingers.get(pointer);
    if (!this.fingers.delete(pointer)) return;
    if (![...this.fingers.values()].includes(item)) this.rest(item);
    this.draw(item);
  }

  rest(item) {
    delete this.sticks[item.id];
    if (item.firstElementChild?.className === "knob") item.firstElementChild.style.transform = "";
  }

  draw(item) {
    item.classList.toggle("on", [...this.fingers.values()].includes(item));
    this.changed();
  }

  wasCut() { // so the person did not mean to let go
    return performance.now() - this.cut_ms < CUT_MS;
  }

  letGo() {
    this.cut_ms = -Infinity;
    const items = [...this.fingers.values()];
    this.fingers.clear();
    for (const item of items) { this.rest(item); this.draw(item); }
  }

  show(seated) {
    const shown = seated && this.hasTouch;
    if (shown === !this.box.hidden) return;
    this.box.hidden = !shown;
    document.body.dataset.touch = shown ? "yes" : "no";
    if (shown) document.getElementById("cameras").scrollIntoView(); // where there is one column, at the top
    else this.letGo();
  }

  read(axes, held) { // as the sticks of a gamepad
    const [right, ahead] = this.sticks["stick-move"] ?? [0, 0], [turn, up] = this.sticks["stick-turn"] ?? [0, 0];
    for (const [axis, value] of [[0, ahead], [1, right], [2, -up], [5, turn]]) axes[axis] += value;
    for (const item of this.fingers.values()) for (const word of (item.dataset.held ?? "drive").split(" ")) held.add(word);
    if (this.slow && this.fingers.size) held.add("slow");
  }
}
