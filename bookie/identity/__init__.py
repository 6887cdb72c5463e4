"""Identity of a bookie: its cookie, its position node, and the refusal of copies.

- `identity`: made at formatting, proved at every start (rule 2.2), watched by an anchor in each
  directory.
- `cookie`: identity in each directory, its bytes and comparison.
- `original`: check that no other process serves as the same bookie (rule 2.8).
- `position`: record outside the disk of how far the log is durable.
- `metadata_age`: stop of all removal while the metadata service is older than before (rule 10.5).
- `own_lifecycle`: draining and removal, as operators and repair set them; read-only mode.
"""
