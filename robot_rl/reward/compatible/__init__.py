"""Whether people who teach one robot contradict each other."""
