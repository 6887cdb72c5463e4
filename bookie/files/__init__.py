"""Files and the key-value store of the index: the only modules of a bookie that touch the disk."""
