"""Choice of places in a bookie's log where damage is distinct from a torn tail.

Leaves changing the bytes to `tests.simulation.faults`.

Invariant: a chosen place lies below the largest `synced_lsn` in a durable record. Damage there is
corruption, while damage of the last group looks like a torn tail.
Source: storage design, "One log", replay.
"""

import random
import struct
from typing import Final

from tests.simulation.disk import Platter

_HEADER = struct.Struct("<HBBIQQII")
MAGIC: Final = 0x5152
SEGMENT_SHIFT: Final = 32


def draw_known_synced(platter: Platter, rng: random.Random) -> tuple[str, int] | None:
    """Return a file and an offset in it that is known to be synced; None if there is none."""
    limit = 0
    sizes: dict[str, int] = {}
    for name in sorted(platter.names):
        if name.startswith("log/") and name.endswith(".log"):
            sizes[name], synced_lsn = _walk(platter.names[name].durable)
            limit = max(limit, synced_lsn)
    spans = []
    for name, size in sizes.items():
        below = limit - (int(name[4:12], 16) << SEGMENT_SHIFT)
        if below > 0 and size > 0:
            spans.append((name, min(size, below)))
    if not spans:
        return None
    name, span = rng.choice(spans)
    return name, rng.randrange(span)


def _walk(data: bytearray) -> tuple[int, int]:
    """Return where the records end, and the largest synced LSN among them."""
    at, synced_lsn = 0, 0
    while at + _HEADER.size <= len(data):
        magic, _, _, size, _, synced, _, _ = _HEADER.unpack_from(data, at)
        if magic != MAGIC or at + _HEADER.size + size > len(data):
            break
        synced_lsn = max(synced_lsn, synced)
        at += _HEADER.size + size
    return at, synced_lsn
