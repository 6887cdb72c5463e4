"""Dump of a cluster's metadata, and its restore into an empty root.

- `restore_record`: node that says that the metadata was restored, and whether an operator accepted
  that.
- `dump_contents`: what a dump holds, read from the store.
- `dump_file`: lines of a dump's file.
- `adjusting`: values that a restore changes: counts and epochs that must not go back.
- `restoring`: writes the content of a dump.
"""
