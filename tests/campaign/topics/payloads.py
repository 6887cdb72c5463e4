"""Contents of each record of a campaign: its writer, its place there, and padding.

Leaves the choice of writers to the processes, and the places of records to `spans`.

Format of a value: `writer/partition/sequence/` in ASCII, then the CRC-32 of that in hexadecimal,
repeated as the CRC determines: some hundred bytes, sometimes 1,500. So a record that was changed,
cut, or stored in a wrong partition is found by its contents alone.
"""

import zlib
from dataclasses import dataclass
from typing import Final

REPEATED_MAX: Final = 16
LARGE_SHARE_MASK: Final = 0x3F00
"""One record in 64 is large."""
REPEATED_WHEN_LARGE: Final = 180


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a record: its writer, partition and number there."""

    writer: str
    partition: int
    sequence: int


def prefix_of(writer: str, partition: int) -> bytes:
    """Return the common prefix of all values of a writer in a partition."""
    return f"{writer}/{partition}/".encode()


def payload_at(prefix: bytes, sequence: int) -> bytes:
    """Return the value of a record whose writer and partition are in the prefix."""
    head = b"%b%d/" % (prefix, sequence)
    crc = zlib.crc32(head)
    times = crc % REPEATED_MAX + 1 if crc & LARGE_SHARE_MASK else REPEATED_WHEN_LARGE
    return head + b"%08x" % crc * times


def payload_of(identity: Identity) -> bytes:
    """Return the value of a record."""
    return payload_at(prefix_of(identity.writer, identity.partition), identity.sequence)


def identify(value: bytes | None, partition: int) -> Identity | None:
    """Return the identity of a value; None if no writer can have written it there."""
    if value is None:
        return None
    try:
        writer, place, sequence, _ = value.split(b"/", 3)
        identity = Identity(writer.decode(), int(place), int(sequence))
    except ValueError:
        return None
    if identity.partition != partition or payload_of(identity) != value:
        return None
    return identity
