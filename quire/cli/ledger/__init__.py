"""The noun `ledger` of the command line."""
