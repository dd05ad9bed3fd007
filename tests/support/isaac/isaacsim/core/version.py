"""See `isaacsim`."""

import os


def get_version():
    """(core, pre-release, major, minor, patch, pre-tag, pre-build, build tag)."""
    core = os.environ.get("FAKE_ISAAC_VERSION", "6.2.0")
    return (core, "", *core.split("."), "", "", "")
