"""Speed of repair: how fast one worker may copy, and when it slows down for clients.

- `throttles`: throttles of bookies, and of one copy.
- `copy_shares`: shares of the copying that one worker may do.
- `slow_bookies`: which part of its limits a bookie with slow appends keeps. Pure.
- `append_watch`: asks bookies how slow appends are.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""
