"""Addresses of servers: host and port in one text, and what a host stands for.

Imports nothing else of Quire.

Format: `host:port`; an IPv6 address is in brackets, as in URLs: `[::1]:3181`. A host alone has no
brackets.
"""

import ipaddress
from typing import Final

PORT_MAX: Final = 65_535
LOCAL_NAME: Final = "localhost"


def in_brackets(host: str) -> str:
    """Return a host as it is written before a colon."""
    return f"[{host}]" if ":" in host else host


def without_brackets(host: str) -> str:
    """Return a host as sockets and certificates take it."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def join_address(host: str, port: int) -> str:
    """Return `host:port`."""
    return f"{in_brackets(host)}:{port}"


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`. Raises ValueError, also for an IPv6 address without
    brackets, because its end cannot be known.
    """
    host, _, port = text.rpartition(":")
    bare = without_brackets(host)
    is_port = port.isascii() and port.isdecimal() and int(port[:6]) <= PORT_MAX
    if not bare or not is_port or (":" in bare) != (bare != host) or any(map(bare.count, "[]")):
        raise ValueError(f"{text!r} is not host:port, with an IPv6 address in brackets")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCAL_NAME


def is_wildcard(host: str) -> bool:
    """Return whether an address means "all addresses"."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
