"""Pairing by stamp and staleness: sensor readings -> Observation."""
