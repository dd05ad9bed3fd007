// What the page says for a word of state, with whoever drives, and of the seat.

import { t } from "./language.js";

export const says = ({ word, says: said, lease }) => {
  if (word !== "HUMAN" || !lease) return t(said ?? word);
  return lease.mine ? t("You are driving") : t("{who} is driving", { who: lease.holder ?? t("A person") });
};

export const seat = ({ mine, holder, elsewhere }) => {
  if (mine) return t("you have the seat");
  if (elsewhere) return holder ? t("{who} at another console has the seat", { who: holder }) : t("somebody at another console has the seat");
  return holder ? t("{who} has the seat", { who: holder }) : t("the seat is free");
};
