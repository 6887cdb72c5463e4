"""State of a log at its leader, and the state entries that store it."""
