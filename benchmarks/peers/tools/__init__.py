"""Performance tools of stock clients, run against Quire and against Apache Kafka."""
