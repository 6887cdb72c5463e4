"""The data plane's bytes: batches, frames and control messages, without any input or output."""
