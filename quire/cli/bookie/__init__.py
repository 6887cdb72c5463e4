"""The noun `bookie` of the command line."""
