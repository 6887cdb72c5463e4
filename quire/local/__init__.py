"""Servers of a local cluster as child processes."""
