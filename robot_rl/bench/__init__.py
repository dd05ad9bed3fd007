"""Every benchmark, and the stand-ins that they need (`robot-rl bench ...`)."""
