"""Marks of requested unclean leaderships, in a topic's stored settings.

Leaves the effects of an unclean leadership to `log_takeover.py`, requesting one to
`leader_elections.py`, and whether a request is already done to `ledger_list.py`.

Format: the setting `quire.unclean` is a list `partition:epoch,...` of the leader epochs from which
on a partition may be taken over by protocol rule 11.6. Clients neither see nor alter it.

Invariant: a mark applies until any broker has begun a leadership of that epoch or a later one, over
any number of attempts. Later leaderships follow the topic's settings.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

UNCLEAN: Final = "quire.unclean"
READ_MAX: Final = 16
"""Number of lists that are kept as read: one is asked for each partition of its topic."""


def unclean_since(stored: Mapping[str, str], partition: int, epoch: int) -> int | None:
    """Return the epoch from which on an unclean leadership of a partition is requested; None if
    none is requested up to `epoch`.
    """
    asked = unclean_epochs(stored).get(partition)
    return asked if asked is not None and asked <= epoch else None


def unclean_epochs(stored: Mapping[str, str]) -> Mapping[int, int]:
    """Return the requested epochs, by partition."""
    return _epochs_in(stored.get(UNCLEAN, ""))


@lru_cache(READ_MAX)
def _epochs_in(noted: str) -> Mapping[int, int]:
    pairs = (each.split(":") for each in noted.split(",") if each)
    return MappingProxyType({int(partition): int(epoch) for partition, epoch in pairs})


def with_unclean(stored: Mapping[str, str], asked: Mapping[int, int]) -> dict[str, str]:
    """Return a topic's stored settings with the given partitions' epochs added; marks of other
    partitions stay.
    """
    epochs = {**unclean_epochs(stored), **asked}
    noted = ",".join(f"{partition}:{epoch}" for partition, epoch in sorted(epochs.items()))
    return {**stored, UNCLEAN: noted}
