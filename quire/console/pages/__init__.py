"""Pages of the console, one module for each area.

- `cluster_page`: health, bookies, and what a loss of some of them would take.
- `ledger_list`: list of all ledgers.
- `login`: login and logout.
"""
