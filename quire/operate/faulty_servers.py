"""Servers that are down or cannot be reached, and what an operator does about them. Pure.

Leaves finding them to `reachability` and `health`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId
from metadata.registry.location import place_of
from metadata.registry.positions import PositionRecord
from quire.operate.findings import Finding


class Kind(StrEnum):
    """Kind of a server."""

    BOOKIE = "bookie"
    BROKER = "broker"
    GATEWAY = "gateway"
    ZOOKEEPER = "zookeeper"


class Fault(StrEnum):
    """What is wrong with a server."""

    DOWN = "down"
    UNREACHABLE = "unreachable"
    """It says that it is up, and this client, or a bookie's repair, does not reach it."""


ADVICE: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.BOOKIE: "check its advertised_host, its certificate's names and the network between",
        Kind.BROKER: "start it: quire broker run; or, if it never returns: quire cluster forget",
        Kind.GATEWAY: "start it: quire gateway run; or, if it never returns: quire cluster forget",
        Kind.ZOOKEEPER: "start it, or change the address of the metadata: with fewer servers, the "
        "next loss may stop all changes",
    }
)


@dataclass(frozen=True, slots=True)
class FaultyServer:
    """A server that is down or cannot be reached."""

    kind: Kind
    name: str
    fault: Fault
    address: str = ""
    host: str = ""
    rack: str = ""
    why: str = ""

    @property
    def finding(self) -> Finding:
        """The problem, and the next step."""
        is_broker_up = self.kind is Kind.BROKER and self.fault is Fault.UNREACHABLE
        advice = ADVICE[Kind.BOOKIE if is_broker_up else self.kind]
        at = f" at {self.address}" if self.address not in ("", self.name) else ""
        what = "is down" if self.fault is Fault.DOWN else f"cannot be reached{at}"
        return Finding(f"{self.kind} {self.name}", f"{what}: {self.why}", advice)


def down_bookie(bookie_id: BookieId, last: PositionRecord | None) -> FaultyServer:
    """Return a bookie that is not registered, with where it was when it recorded its position."""
    address, location = ("", "") if last is None else (last.address, last.location)
    place = place_of(location, address.rpartition(":")[0] or address) if location else None
    return FaultyServer(
        Kind.BOOKIE,
        bookie_id,
        Fault.DOWN,
        address,
        "" if place is None else place.host,
        "" if place is None else place.rack,
        "it is not registered",
    )
