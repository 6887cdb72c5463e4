"""The write-ahead log: records, segments, group commit, and replay at a start."""
