"""Hosts on this machine, each with its own network, whose packets can be dropped in one direction.

Needs Linux, root and `ip`. A host is a network namespace with a wire to one that forwards, where a
rule drops what one host sends to another: without an error, as a broken network does.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

PREFIX: Final = "quire-bench"
HUB: Final = f"{PREFIX}-hub"
NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of setns(2)."""
FORWARD: Final = "echo 1 > /proc/sys/net/ipv4/ip_forward"


def address_of(host: int) -> str:
    """Return the address of a host."""
    return f"10.99.{host}.2"


def on(host: int, words: Sequence[str]) -> list[str]:
    """Return the command that runs words on a host."""
    return ["ip", "netns", "exec", _name(host), *words]


@contextlib.contextmanager
def hosts(count: int) -> Iterator[None]:
    """Make the hosts 1 to `count`, connected to each other; remove them at the end."""
    try:
        _ip("netns", "add", HUB)
        _ip("netns", "exec", HUB, "sh", "-c", FORWARD)
        for host in range(1, count + 1):
            _add(host)
        yield
    finally:
        for name in (HUB, *map(_name, range(1, count + 1))):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _add(host: int) -> None:
    name, wire = _name(host), f"h{host}"
    _ip("netns", "add", name)
    _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", wire, "netns", HUB)
    for where, device, address in ((name, "eth0", 2), (HUB, wire, 1)):
        _ip("-n", where, "addr", "add", f"10.99.{host}.{address}/24", "dev", device)
        _ip("-n", where, "link", "set", device, "up")
    _ip("-n", name, "link", "set", "lo", "up")
    _ip("-n", name, "route", "add", "default", "via", f"10.99.{host}.1")


@contextlib.contextmanager
def cut(pairs: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Drop what the first host of each pair sends to the second, until the end of the block."""
    rules = [
        ("from", address_of(one), "to", address_of(other), "type", "blackhole")
        for one, other in pairs
    ]
    for rule in rules:
        _ip("-n", HUB, "rule", "add", *rule)
    try:
        yield
    finally:
        for rule in rules:
            _ip("-n", HUB, "rule", "del", *rule)


def enter(host: int) -> None:
    """Move this thread, and those that it starts, to a host."""
    descriptor = os.open(f"/run/netns/{_name(host)}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns failed: run this as root")
    finally:
        os.close(descriptor)


def _name(host: int) -> str:
    return f"{PREFIX}-{host}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
