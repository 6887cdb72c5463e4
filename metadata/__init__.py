"""What the cluster agrees on: ledger metadata, registrations and the store that keeps them.

Imports nothing else of Quire; every other package builds on it.
"""
