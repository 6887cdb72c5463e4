"""Side-by-side measurements of ways to replicate a ledger while faults strike."""
