"""Stock clients' own performance tools, put on Quire and on Apache Kafka alike."""
