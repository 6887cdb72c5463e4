"""The metadata store: its interface, an in-memory implementation and one over ZooKeeper."""
