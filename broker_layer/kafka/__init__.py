"""The bytes of Kafka's protocol: frames, messages, record batches and error codes. Pure.

- `versions`: APIs and their versions that brokers serve.
- `frames`: headers of requests and responses.
- `messages`: messages by kafka-python, made safe.
- `schema_guard`: check of counts and sizes before a library decodes a message.
- `produce_codec`: Produce by hand.
- `fetch_codec`: Fetch by hand, without copying batches.
- `primitives`: basic types for codecs by hand.
- `client_codecs`: our codecs for the clients of kafka-python.
- `error_codes`: error codes by Kafka's names.
- `errors`: what can be wrong with bytes.
- `record_batch/`: record batches of magic 2.
- `schemas/`: schemas that kafka-python lacks.
"""
