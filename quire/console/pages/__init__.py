"""Pages of the console, one module for each area.

- `cluster_page`: health, bookies, and what a loss of some of them would take.
- `ledger_page`: the list of ledgers; one ledger, its copies and its entries.
- `chains_page`: chains, and the links of one chain.
- `repair_page`: state of repair, and its jobs.
- `bookie_page`: one bookie, and its changes.
- `topics_page`: topics, and one topic with all that is behind it.
- `messages_page`: messages of a topic.
- `groups_page`: groups, their lag, and their offsets.
- `transactions_page`: transactions that hang.
- `reports_page`: reports of benches, opened in place.
"""
