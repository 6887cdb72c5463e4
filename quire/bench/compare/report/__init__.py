"""Draws what a comparison found: one HTML page, with nothing outside it."""
