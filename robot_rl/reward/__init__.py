"""Reward evidence and its assembly: predicates now, people and models beside them."""
