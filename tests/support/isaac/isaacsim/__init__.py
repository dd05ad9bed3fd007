"""A stand-in for Isaac Sim, as far as `sim/isaac/worker.py` calls it, that moves with MuJoCo.

It has the vendor's names and parameters (a test compares them with `sim/isaac/manifest.json`), and
what goes beyond them is refused: arrays of another shape, prims that the stage does not have,
physics before `play`. The scene is that of the words in `FAKE_ISAAC`, e.g. `experiment=reach`;
where its parts are comes from the stage that is opened.
"""

import os
import sys


class SimulationApp:
    """Starts at once, unless the environment says what is to go wrong."""

    def __init__(self, launch_config=None, experience=""):
        wrong = os.environ.get("FAKE_ISAAC_FAULT", "")
        if wrong == "licence":
            sys.exit("Unable to bootstrap inner kit kernel: EULA not accepted. Set SOMETHING=YES.")
        assert set(launch_config or {}) <= {"headless"}

    def update(self):
        """Go on by one frame."""

    def close(self, wait_for_replicator=True, skip_cleanup=False, exit_code=0):
        """End."""
