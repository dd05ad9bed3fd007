// What the page says for a word of state, with whoever drives.

export const says = ({ word, says: said, lease }) => {
  if (word !== "HUMAN" || !lease) return said ?? word;
  return lease.mine ? "You are driving" : `${lease.holder ?? "A person"} is driving`;
};
