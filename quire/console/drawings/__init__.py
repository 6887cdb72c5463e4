"""Drawings of the console, as SVG. Pure."""
