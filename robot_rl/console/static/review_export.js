// The episode on the page as a file for another viewer.

import { t } from "./language.js";
import { at } from "./socket.js";
import { toast } from "./toast.js";

const OPEN = {
  rrd: (file) => `${t("Downloaded {file}: open it with", { file })}\nrerun ${file}`,
  mcap: (file) => t("Downloaded {file}: drag it into Foxglove", { file }),
};
const KEPT_MS = 60000; // how long a browser may take to begin the download

export function makeExports(box, { query, current }) {
  const buttons = [...box.querySelectorAll("[data-export]")];

  async function take(button) {
    const kind = button.dataset.export, e = current();
    if (!e) return;
    for (const each of buttons) each.disabled = true; // one at a time
    try {
      const answer = await fetch(at(`/api/export/${kind}?${query(e)}`));
      if (!answer.ok) {
        const { error, detail } = await answer.json().catch(() => ({}));
        throw new Error(error ?? detail ?? t("refused ({status})", { status: answer.status }));
      }
      const file = answer.headers.get("Content-Disposition")?.match(/filename="([^"]+)"/)?.[1] ?? `episode.${kind}`;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await answer.blob());
      link.download = file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
      toast(OPEN[kind](file));
    } catch (error) { toast(error.message); }
    for (const each of buttons) each.disabled = false;
  }

  for (const button of buttons) button.onclick = () => take(button);
}
