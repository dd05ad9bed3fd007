"""Evidence for rewards, and how rewards are made of it: predicates, people's labels, models."""
