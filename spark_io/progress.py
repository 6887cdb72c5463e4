"""Backlog of a streaming query, from the progress that Spark reports.

Spark shows no metrics and no description of a Python source. But a source's progress has the end of
the micro-batch and the newest offset, and both are positions of this package. Pure.

Format of the offsets: `ledgers.positions` and `topics.topic_offsets`.

Source: measured: PySpark 4.3 has no source metrics for Python sources.
"""

import json
from collections.abc import Mapping, Sequence

from spark_io.errors import OffsetError
from spark_io.ledgers.positions import COUNT
from spark_io.offsets import separated


def entries_behind(progress: Mapping[str, object]) -> int | None:
    """Return how many entries or offsets of all sources a query has not read yet at the end of a
    micro-batch. None if a source is a chain with so many links to read that their entries were not
    counted, or if a source is no `ledger` or `topic`. Raises OffsetError.

    `progress` is `query.lastProgress`, or one of `query.recentProgress`.
    """
    sources = progress["sources"]
    assert isinstance(sources, Sequence)
    behind = [_of_source(source) for source in sources]
    return None if None in behind else sum(count for count in behind if count is not None)


def _of_source(source: Mapping[str, object]) -> int | None:
    end, latest = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
    if end is None or not latest:
        return None
    return sum(max(0, newest - end.get(place, 0)) for place, newest in latest.items())


def _positions(text: object) -> dict[tuple[str, ...], int] | None:
    """Return the next entry or offset of each ledger or partition, or the number of entries of a
    chain that the query has read, if its position has it; None for other positions.
    """
    try:
        stored = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise OffsetError(f"{text!r} is no offset: JSON was expected ({error})") from error
    if not isinstance(stored, Mapping):
        return None
    positions, _ = separated(stored)
    if "link" in positions:
        count = positions.get(COUNT)
        return {(COUNT,): count} if isinstance(count, int) else {}
    places: dict[tuple[str, ...], int] = {}
    for name, place in positions.items():
        if isinstance(place, int) and name.isdecimal():
            places[(name,)] = place
        elif isinstance(place, Mapping):
            places |= {(name, str(number)): int(offset) for number, offset in place.items()}
        else:
            return None
    return places
