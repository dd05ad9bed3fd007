// What became of an episode, in one word for all pages: what a person said counts most, then what was recorded.

export const OUTCOMES = { // word -> its mark, and what the page calls it
  success: ["✓", "success"], failure: ["✗", "failure"], neutral: ["○", "neutral"], excluded: ["–", "excluded"],
  aborted: ["⊘", "aborted"], unlabelled: ["?", "without a label"], running: ["…", "running"],
};

export const said = (e) => (e.review.neutral ? null : e.review.success ?? e.success);

export function outcome(e) { // a word of OUTCOMES
  if (e.review.neutral) return "neutral";
  if (e.review.excluded) return "excluded";
  if (said(e) != null) return said(e) ? "success" : "failure";
  if (!e.ending) return "running";
  return e.ending === "aborted" ? "aborted" : "unlabelled";
}
