"""Handles that block, for callers without an event loop."""
