"""Reward from a vision-language model behind an OpenAI-compatible server, beside the loop."""
