"""Exploration of the production decision classes in small scope: `python -m tests.model`."""
