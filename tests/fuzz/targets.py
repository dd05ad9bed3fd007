"""Every decoder and parser that reads bytes or text of others: name -> target."""

from __future__ import annotations

from tests.fuzz import configs, files, graph, messages
from tests.fuzz.target import TARGETS, Target

__all__ = ["TARGETS", "Target", "configs", "files", "graph", "messages"]
