"""Topics, partitions and what brokers report of them."""
