"""Inspection of a stopped bookie's directory, offline.

- `stopped`: lock, segment files and index.
- `segments`: one row for each segment file, and the records of one.
- `index_rebuild`: a new index from the old one and every segment, in its place.
"""
