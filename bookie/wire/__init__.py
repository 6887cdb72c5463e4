"""Bytes of the data plane: batches, frames and control messages. Does no input or output."""
