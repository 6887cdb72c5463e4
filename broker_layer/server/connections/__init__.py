"""Sockets of a broker: listeners, frames and the limits of their memory.

- `server`: opens the listeners.
- `connection`: one client: frames in, answers out in request order.
- `frame_assembler`: byte stream into frames.
- `listeners`: names, bind addresses and advertised addresses.
- `memory_budget`: bytes of requests of all connections.
- `server_context`: what all connections share.
"""
