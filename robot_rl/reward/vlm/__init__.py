"""Reward from a vision-language model behind a server, which is asked beside the control loop."""
