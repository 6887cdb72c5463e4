"""Bookies that are up, their cookies, positions and locations."""
