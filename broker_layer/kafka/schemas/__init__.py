"""Schemas of messages that kafka-python lacks, in the form in which it reads its own."""
