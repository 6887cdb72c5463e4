"""Place of each run of entries in the log, and state of each ledger: in memory over a key-value
store.
"""
