"""Inspection of a stopped bookie's directory, offline.

- `stopped`: lock, segment files and index.
- `segment_report`: one row for each segment file.
- `dump`: records of one segment file.
- `index_rebuild`: a new index from the old one and every segment.
- `index_swap`: exchange of an index for a new one.
"""
