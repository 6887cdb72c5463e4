"""Sockets of a broker: listeners, frames and the memory that they may take."""
