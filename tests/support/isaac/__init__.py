"""Isaac Sim's stand-in (`isaacsim` in this folder), and how to start the worker with it."""

import os
import sys
from pathlib import Path

import pytest

from robot_rl_sim.isaac import PYTHON_VARIABLE

STAND_IN = Path(__file__).parent


def use_stand_in(monkeypatch: pytest.MonkeyPatch, scene: str, **more: str) -> None:
    """Let workers started from now on find the stand-in, with the scene of these words."""
    for key, value in ({PYTHON_VARIABLE: sys.executable, "FAKE_ISAAC": scene} | more).items():
        monkeypatch.setenv(key, value)
    path = os.pathsep.join((str(STAND_IN), os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
