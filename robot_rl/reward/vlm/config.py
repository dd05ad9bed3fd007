"""Which vision-language model is asked, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robot_rl.errors import did_you_mean

PROTOCOLS = ("chat", "heads")
RESERVED = frozenset(("model", "messages", "logprobs", "top_logprobs", "max_tokens", "temperature"))
"""Fields of the request that only the client sets."""


@dataclass(frozen=True, kw_only=True)
class VlmConfig:
    """Where the model is and what it may cost. The key itself is never in a config."""

    url: str = "http://127.0.0.1:8000/v1"
    model: str = ""  # as the server calls it; there is no default
    protocol: str = "chat"  # | heads: a reward model that answers in numbers, as Robometer
    key: str = ""  # name of a key that this machine has for this host (`config.api_key`)
    plain_http: bool = False  # allow http beyond this machine: pictures and key unencrypted
    proxy: str = ""  # proxies of the environment are not used
    timeout_s: float = 30.0  # of one whole try
    retries: int = 3
    in_flight: int = 16  # requests at once
    image_px: int = 256  # longer side of what is sent; 32 x 32 are one token for Qwen3-VL
    jpeg_quality: int = 90
    logprobs: str = "require"  # | prefer | never
    budget_per_hour: float = 0.0  # of one robot; 0 = no limit
    budget_unit: str = "requests"  # | tokens
    breaker_failures: int = 8  # tries in a row without an answer
    breaker_pause_s: float = 30.0
    cache: str = ""  # file with earlier answers; "" = forget them at the end
    prompts: str = ""  # folder with other prompts; "" = ours
    extra: dict[str, Any] = field(default_factory=dict)  # more fields of the request

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.timeout_s <= 0.0 or self.breaker_pause_s < 0.0 or self.budget_per_hour < 0.0:
            raise ValueError("timeout_s must be positive, pause and budget not negative")
        if self.retries < 0 or min(self.in_flight, self.breaker_failures) < 1:
            raise ValueError("retries must not be negative; in_flight, breaker_failures at least 1")
        if not 16 <= self.image_px <= 4096 or not 1 <= self.jpeg_quality <= 100:
            raise ValueError("image_px must lie in 16..4096, jpeg_quality in 1..100")
        if self.logprobs not in ("require", "prefer", "never"):
            raise ValueError("logprobs must be require, prefer or never")
        if self.budget_unit not in ("requests", "tokens"):
            raise ValueError("budget_unit must be requests or tokens")
        if self.protocol not in PROTOCOLS:
            raise ValueError(
                f"protocol '{self.protocol}': {did_you_mean(self.protocol, PROTOCOLS)}"
            )
        if self.protocol == "heads" and (self.prompts or self.extra):
            raise ValueError("protocol=heads asks without words: no prompts, no extra fields")
        if self.protocol == "heads" and self.budget_unit == "tokens":
            raise ValueError("protocol=heads has no tokens to count: budget_unit must be requests")
        if RESERVED & set(self.extra):
            raise ValueError(f"extra must not set {', '.join(sorted(RESERVED & set(self.extra)))}")
