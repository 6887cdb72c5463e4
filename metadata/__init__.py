"""Cluster metadata: ledgers, topics, registrations, and the store that keeps them.

Imports nothing else of Quire; every other package builds on it.
"""
