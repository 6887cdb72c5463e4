"""The same work for Quire, Apache BookKeeper and Apache Kafka, interleaved on one machine."""
