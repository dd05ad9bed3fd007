"""The operator's web page: watch, take over, label, stop, review."""
