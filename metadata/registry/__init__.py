"""Live bookies, their cookies, positions and locations."""
