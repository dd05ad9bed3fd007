"""Who drives: policy runtime, arbiter, takeover."""
