"""Ledger metadata, ids, chains of ledgers and the feed of deletions.

- `ledger_metadata`: one ledger's metadata as a value, with the allowed transitions; pure.
- `lost_entries`: its entries whose loss was accepted; pure.
- `entry_ranges`: arithmetic on ranges of entries; pure.
- `copies`: which bookies must hold which entries, and which copies are left; pure.
- `payload_encryption`: facts about the encryption of its payloads; pure.
- `ledger_owner`: the principal that created it; pure.
- `codec`: its bytes.
- `ledger_store`: stores it by compare-and-set, with every unknown outcome decided (rule 1.3).
- `ledger_ids`: ledger ids, unique in the cluster.
- `chain`: an ordered list of ledgers as values; pure.
- `chain_creation`: creates a chain, with the token that identifies it.
- `chain_owner`: the principal that created it through a gateway; pure.
- `chain_life`: separates the chains of one name from each other; removes a chain.
- `chain_store`: stores chains by compare-and-set.
- `deletion_feed`: reports to bookies which ledgers were deleted.
"""
