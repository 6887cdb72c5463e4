"""The noun `topic` of the command line."""
