"""When a learner compiles its losses (`torch.compile`): at once, or when a run is long enough."""

from __future__ import annotations

import logging

import torch

from robot_rl.errors import SetupError
from robot_rl.learn.algos.base import Algorithm
from robot_rl.nets.cpu import need_compiler

log = logging.getLogger(__name__)


class Compiling:
    """Compiles `algo` now, or by a count of updates, so that runs with equal seeds stay equal.

    With cameras on a CPU the convolutions take nearly all of the time, and it never pays.

    Raises:
        SetupError: it is to be compiled now, and there is no compiler.
    """

    def __init__(self, algo: Algorithm, now: bool, after_updates: int) -> None:
        self._algo, self._after = algo, after_updates
        pays = algo.device.type != "cpu" or algo.net.encoder is None
        self._waits = bool(after_updates) and pays and not now
        if now:
            algo.compile()

    def if_due(self, updates: int, lockstep: bool) -> None:
        """Compile once that many updates are done, if there is a compiler.

        In lockstep only: elsewhere control loop and gate need the CPU while it is compiled.
        """
        if not (self._waits and lockstep) or updates < self._after:
            return
        self._waits = False
        try:
            need_compiler(self._algo.device)
        except SetupError as error:
            log.info("the learner goes on without torch.compile: %s", error)
            return
        log.info("compiling the losses after %d updates; this takes half a minute", updates)
        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as before
        self._algo.compile()
