"""One partition's log, and a coordinator's state: chains of ledgers, and what their leader knows of
them.
"""
