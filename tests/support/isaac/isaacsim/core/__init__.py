"""See `isaacsim`."""
