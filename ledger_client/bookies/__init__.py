"""Connections to bookies, and placement of ensembles."""
