"""The write-ahead log: records, segments, group commit, and how a start reads them back."""
