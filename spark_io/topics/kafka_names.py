"""Names of options of Spark's Kafka source, which the `topic` source takes too. Pure.

Leaves the values to `topic_options`, which knows only the names of this source.

Invariants: an option of Kafka's source that has no counterpart is an OptionError that says why and
what to do; it is never ignored silently.

Source: Spark design, "Reading".
"""

from collections.abc import Mapping
from typing import Final

from spark_io.errors import OptionError

ALIASES: Final = {
    "subscribe": "topic",
    "kafka.bootstrap.servers": "bootstrapServers",
    "kafka.isolation.level": "isolation.level",
    "kafka.compression.type": "compression",
}
"""Option of this source for each option of Kafka's."""

_BY_TIME: Final = (
    "records are not found by time: give offsets with startingOffsets or endingOffsets"
)
_NO_GROUP: Final = "the source reads bookies without a consumer group: remove the option"
_NO_WAIT: Final = (
    "a micro-batch begins as soon as there are records: use a trigger with an interval"
)
_NO_SIZE: Final = (
    "the sizes of records are not known when a micro-batch is planned: use maxOffsetsPerTrigger"
)
ABSENT: Final = {
    "assign": "partitions cannot be chosen: use subscribe, and filter by the column partition",
    "subscribepattern": "patterns are not supported: name the topics with subscribe",
    "startingtimestamp": _BY_TIME,
    "endingtimestamp": _BY_TIME,
    "startingoffsetsbytimestamp": _BY_TIME,
    "endingoffsetsbytimestamp": _BY_TIME,
    "startingoffsetsbytimestampstrategy": _BY_TIME,
    "groupidprefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "minoffsetspertrigger": _NO_WAIT,
    "maxtriggerdelay": _NO_WAIT,
    "maxbytespertrigger": _NO_SIZE,
    "maxentriespertrigger": "a topic has records with offsets: use maxOffsetsPerTrigger",
}
"""Reason for each option of Kafka's or the `ledger` source, in lower case, without counterpart."""
_PREFIX: Final = "kafka."
_OTHER: Final = (
    "settings of Kafka's clients are not passed on: an identity is in the client file that "
    "docs/security.md describes, and other settings are options of this source"
)


def own_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the names of this source. Raises OptionError."""
    renamed: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        own = ALIASES.get(name.lower())
        if own is None:
            _refuse_absent(name)
        target = (own or name).lower()
        if target in renamed and renamed[target] != value:
            raise OptionError(name, f"contradicts {given[target]}, which means the same: give one")
        renamed[target], given[target] = value, name
    return renamed


def _refuse_absent(name: str) -> None:
    why = ABSENT.get(name.lower())
    if why is None and name.lower().startswith(_PREFIX):
        why = f"{_OTHER}; of Kafka's there are {[each for each in ALIASES if _PREFIX in each]}"
    if why is not None:
        raise OptionError(name, why)
