// What the page says for a word of state, with whoever drives.

import { t } from "./language.js";

export const says = ({ word, says: said, lease }) => {
  if (word !== "HUMAN" || !lease) return t(said ?? word);
  return lease.mine ? t("You are driving") : t("{who} is driving", { who: lease.holder ?? t("A person") });
};
