"""What a killed writer has left."""

from __future__ import annotations


def committed_and_put(lines: list[str]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """(episode, step) pairs that the process saw committed, and that it handed over."""
    pairs: dict[str, set[tuple[int, int]]] = {"c": set(), "p": set()}
    for line in lines:
        if line != "ready":
            what, episode, step = line.split()
            pairs[what].add((int(episode), int(step)))
    return pairs["c"], pairs["p"]
