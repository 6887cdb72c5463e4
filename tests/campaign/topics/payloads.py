"""What each record of a campaign holds: who wrote it, its place there, and bytes that follow.

Leaves who writes what to the processes, and where it is found to `spans`.

Format of a value: `writer/partition/sequence/` in ASCII, then the CRC-32 of that in hexadecimal,
repeated and cut to a size that the CRC decides too. So a record that is changed, cut, or in a
partition where it does not belong shows by itself.
"""

import zlib
from dataclasses import dataclass
from typing import Final

FILL_BYTES: Final = (100, 1_500)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which record it is: the writer's so many-th in that partition."""

    writer: str
    partition: int
    sequence: int


def payload_of(identity: Identity) -> bytes:
    """Return the value of a record."""
    head = f"{identity.writer}/{identity.partition}/{identity.sequence}/".encode()
    crc = zlib.crc32(head)
    low, high = FILL_BYTES
    size = low + crc % (high - low)
    unit = b"%08x" % crc
    return head + (unit * (size // len(unit) + 1))[:size]


def identify(value: bytes | None, partition: int) -> Identity | None:
    """Return which record a value is; None if nobody can have written it there."""
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
