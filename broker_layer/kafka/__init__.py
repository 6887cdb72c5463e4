"""The bytes of Kafka's protocol: frames, messages, record batches and error codes. Pure."""
