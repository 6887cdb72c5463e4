"""Members of an in-sync ledger that leave, return or receive copies."""
