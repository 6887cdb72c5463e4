"""The metadata store: its interface, in memory, and over ZooKeeper."""
