"""The replication protocol: writers, readers and recovery over bookies that only store."""
