"""Topics, partitions and the brokers' reports about them."""
