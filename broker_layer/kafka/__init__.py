"""The bytes of Kafka's protocol: frames, messages, record batches and error codes. Pure.

- `versions`: APIs and their versions that brokers serve.
- `frames`: headers of requests and responses.
- `messages`: messages by kafka-python, made safe.
- `consumer_group_messages`: messages of KIP-848, which kafka-python lacks.
- `assignment_messages`: the assignment of a member of a classic group of consumers.
- `schema_guard`: check of counts and sizes before a library decodes a message.
- `produce_codec`: Produce by hand.
- `fetch_codec`: Fetch by hand, without copying batches.
- `fetch_messages`: Fetch as a client sends it, for one partition.
- `primitives`: basic types for codecs by hand.
- `leaders`: the leader, as refusals of Produce and Fetch name it.
- `authorized_operations`: what a client may do with topics, groups and the cluster.
- `error_codes`: error codes by Kafka's names.
- `errors`: what can be wrong with bytes.
- `record_batch/`: record batches of magic 2.
- `schemas/`: schemas that kafka-python lacks.
"""
