"""Payloads of ledgers as columns, parsed from JSON or CSV.

- `payload_columns`: the columns and their types, checked.
- `parsing`: payloads into columns.
- `parsed_readers`: readers of the `ledger` source that return these columns.
"""
