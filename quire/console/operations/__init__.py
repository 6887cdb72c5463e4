"""Bookies and repair, as the console shows and changes them.

- `bookie_figures`: disk, sync and queue figures of one bookie. Pure.
- `bookie_report`: what the metadata and a bookie itself report about it.
- `bookie_acts`: the changes of a bookie that its state allows. Pure.
"""
