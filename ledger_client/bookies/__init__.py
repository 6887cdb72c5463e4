"""Connections to bookies and the choice of bookies."""
