"""Inspection of a stopped bookie's directory, offline."""
