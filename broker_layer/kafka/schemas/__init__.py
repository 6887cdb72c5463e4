"""Schemas of messages that kafka-python lacks, in the format of kafka-python's own schemas."""
