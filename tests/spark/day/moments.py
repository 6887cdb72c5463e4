"""What a streaming query was doing when its driver was killed, as its durable state shows it.

Spark writes `offsets/N` when it plans batch N, and `commits/N` when it records it as done. In
between the sink takes the batch: a chain notes its number with the link, a table of files in
`_spark_metadata/N`. Leaves killing to `day`.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ledger_client.sync import LedgerClient

NONE = -1


class Moment(StrEnum):
    """Moment of one batch at which a driver died."""

    BETWEEN_BATCHES = "between batches"
    BEFORE_PUBLICATION = "before publication"
    BEFORE_RECORD = "between publication and record"


@dataclass(frozen=True, slots=True)
class QueryState:
    """Last batches of a query that were planned, published by the sink, and recorded."""

    planned: int
    published: int
    recorded: int

    @property
    def moment(self) -> Moment:
        """The moment at which the query stopped, if it runs no more."""
        if self.planned == self.recorded:
            return Moment.BETWEEN_BATCHES
        if self.published == self.planned:
            return Moment.BEFORE_RECORD
        return Moment.BEFORE_PUBLICATION


def state_of_chain_query(client: LedgerClient, checkpoint: Path, chain: str) -> QueryState:
    """Return the state of a query that writes into a chain."""
    metadata = checkpoint / "metadata"
    published = None
    if metadata.exists():
        published = client.chain(chain).last_batch(json.loads(metadata.read_text())["id"])
    return _state(checkpoint, NONE if published is None else published)


def state_of_table_query(checkpoint: Path, table: Path) -> QueryState:
    """Return the state of a query that writes a table of files."""
    return _state(checkpoint, newest_batch(table / "_spark_metadata"))


def _state(checkpoint: Path, published: int) -> QueryState:
    return QueryState(
        newest_batch(checkpoint / "offsets"), published, newest_batch(checkpoint / "commits")
    )


def newest_batch(directory: Path) -> int:
    """Return the highest number of a log of Spark; `9.compact` is entry 9."""
    if not directory.exists():
        return NONE
    numbers = [path.name.removesuffix(".compact") for path in directory.iterdir()]
    return max((int(name) for name in numbers if name.isdigit()), default=NONE)
