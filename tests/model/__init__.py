"""Explores the production decision classes in small scope, all of it: `python -m tests.model`."""
