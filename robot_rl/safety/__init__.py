"""The gate: limits, watchdogs and state machine as pure functions (numpy only)."""
