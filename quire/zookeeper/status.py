"""What ZooKeeper servers answer about themselves.

Leaves the connection to `metadata.store.embedded`.

Format: the answer to `srvr` has lines of `Name: value`; a server that does not serve has none that
begins with `Mode:`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.store.embedded import four_letter_word
from quire.addresses import join_address

NOT_SERVING: Final = "not serving"
NO_ANSWER: Final = "no answer"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """State of one server."""

    address: str
    mode: str
    """`standalone`, `leader`, `follower`, `observer`, NOT_SERVING or NO_ANSWER."""
    version: str
    node_count: int | None
    connections: int | None

    @property
    def serves(self) -> bool:
        """Whether clients are served."""
        return self.mode not in (NOT_SERVING, NO_ANSWER)


async def ask_servers(addresses: Sequence[tuple[str, int]]) -> list[ServerStatus]:
    """Return the state of each server, in the given order."""
    return await asyncio.gather(*(_ask(*address) for address in addresses))


async def _ask(host: str, port: int) -> ServerStatus:
    return read_status(join_address(host, port), await four_letter_word(host, port, "srvr"))


def read_status(address: str, answer: str) -> ServerStatus:
    """Return what an answer to `srvr` says; it is empty if there was none."""
    values = {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in answer.splitlines())
        if colon
    }
    mode = values.get("Mode", NOT_SERVING if answer.strip() else NO_ANSWER)
    version = values.get("Zookeeper version", "").partition("-")[0]
    return ServerStatus(
        address, mode, version, _count(values, "Node count"), _count(values, "Connections")
    )


def _count(values: dict[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if text.isdecimal() else None
