"""Where each run of entries lies and what is known of each ledger, in memory over a key-value
store.
"""
