"""Lag of a group in its partitions, in records and in seconds.

Leaves the committed offsets to `group_reading`.

Invariant: a page looks for the times of at most TIMED_MAX partitions.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker_layer.peer import PeerAddress
from quire.console.topics.record_reading import time_at
from quire.operate.brokers import BrokerAccess
from quire.operate.topics import LATEST, Place, leaders_in, offsets_at, topic_metadata

TIMED_MAX: Final = 50
MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition."""

    place: Place
    committed: int
    end: int | None
    """None if the leader does not answer."""
    behind_ms: int | None
    """Time from the last committed record to the newest one; None if it is unknown."""
    note: str

    @property
    def lag(self) -> int | None:
        """Records after the committed offset."""
        return None if self.end is None else max(0, self.end - self.committed)

    @property
    def behind_s(self) -> float | None:
        """The same time in seconds."""
        return None if self.behind_ms is None else self.behind_ms / MS_PER_S


async def lags_of(
    brokers: BrokerAccess, committed: Mapping[Place, tuple[int, str]]
) -> list[PartitionLag]:
    """Return the lag of committed offsets, which have notes beside them. Raises NoBrokerError."""
    if not committed:
        return []
    places = sorted(committed)
    topics = list(dict.fromkeys(each.topic for each in places))
    leaders = leaders_in(await topic_metadata(brokers, topics))
    ends = await offsets_at(brokers, leaders, places, LATEST)
    timed = await asyncio.gather(
        *(
            _behind_ms(brokers, leaders, each, committed[each][0], ends[each].offset)
            for each in places[:TIMED_MAX]
            if each in ends
        )
    )
    behind = dict(zip([each for each in places[:TIMED_MAX] if each in ends], timed, strict=True))
    return [
        PartitionLag(
            each,
            committed[each][0],
            ends[each].offset if each in ends else None,
            behind.get(each),
            committed[each][1],
        )
        for each in places
    ]


async def _behind_ms(
    brokers: BrokerAccess,
    leaders: Mapping[Place, PeerAddress],
    place: Place,
    committed: int,
    end: int,
) -> int | None:
    if committed >= end:
        return 0
    newest = await time_at(brokers, leaders, place, end - 1)
    last = await time_at(brokers, leaders, place, max(0, committed - 1))
    return None if newest is None or last is None else max(0, newest - last)
