"""Scrub: slow check of everything that a bookie stores, and reports of damaged entries.

- `schedule`: what is checked next, and when. Pure.
- `scrubber`: performs the checks, and keeps the bookie's record in the metadata.

Source: protocol rule 9.12; docs/repair.md, "Scrub".
"""
