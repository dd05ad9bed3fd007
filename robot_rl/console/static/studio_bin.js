// The bin: runs that were put away, and the way back.

import { t } from "./language.js";
import { get } from "./socket.js";
import { bytes, el, moment, send, trouble } from "./studio_parts.js";
import { toast } from "./toast.js";

export function showBin(side, _said, page) {
  const list = el("div", { className: "bin" });
  side.append(el("h2", {}, t("Bin")), el("p", { className: "soft" }, t("Runs that were put away. They are in the folder .bin beside your runs and keep their space; to delete them for good, remove that folder by hand.")), list);
  const draw = async () => {
    try {
      const items = await get("/api/bin");
      list.replaceChildren(...items.map((item) => {
        const back = el("button", { type: "button", disabled: !page.mayAct }, t("Restore"));
        back.onclick = async () => {
          try { toast(t("{run} is back", await send("/api/restore", { id: item.id }))); } catch (error) { list.prepend(trouble(error)); return; }
          draw();
        };
        return el("div", { className: "item" }, el("div", {}, el("b", {}, item.name), el("small", {}, t("put away {when}, {size}", { when: moment(1000 * item.away_s), size: bytes(item.bytes) }))), back);
      }));
      if (!items.length) list.append(el("p", { className: "none" }, t("The bin is empty.")));
    } catch (error) {
      list.replaceChildren(trouble(error));
    }
  };
  draw();
}
