"""Bytes between clients and bookies: batches, frames and control messages, without input or output.

- `batch`: builds, checks and slices a batch.
- `frames`: byte stream into frames, frame headers, and buffers for large frames, used again.
- `messages`: everything that a client and a bookie send besides batches.
- `codec`: control messages as msgpack, packed answers to adds, and the answer to a read.
- `errors`: how bytes from outside can be wrong.
"""
