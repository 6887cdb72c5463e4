"""Bytes between clients and bookies: batches, frames and control messages, without input or output.

- `batch`: builds, checks and slices a batch.
- `frames`: byte stream into frames, and frame headers.
- `messages`: everything that a client and a bookie send besides batches.
- `codec`: control messages as msgpack, and packed answers to adds.
- `entries`: answer to a read.
- `bodies`: buffers for large frames, used again.
- `errors`: how bytes from outside can be wrong.
"""
