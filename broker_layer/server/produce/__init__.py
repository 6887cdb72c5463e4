"""The Produce API: checks, verification, and appends that wait for their acknowledgement."""
