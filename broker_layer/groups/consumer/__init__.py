"""Groups of the KIP-848 protocol: targets, reconciliation, assignors and their records."""
