"""Groups of KIP-848's protocol: targets, reconciliation, assignors and their records."""
