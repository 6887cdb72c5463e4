"""Reads of a log: by offset and by time, with read-ahead for sequential readers."""
