"""Sockets of a broker: listeners, frames and the limits of their memory."""
