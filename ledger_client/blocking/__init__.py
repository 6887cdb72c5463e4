"""Blocking handles, for callers without an event loop."""
