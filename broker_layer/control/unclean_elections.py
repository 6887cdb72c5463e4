"""Notes, in a topic's stored settings, which leaderships an operator asked to be unclean.

Leaves what an unclean leadership may do to `log_takeover.py`, asking to `leader_elections.py`, and
whether what was asked for is done already to `ledger_chain.py`.

Format: the setting `quire.unclean` is a list `partition:epoch,...` of the leader epochs from which
on a partition may be taken over by protocol rule 11.6. Clients neither see nor alter it.

Invariant: it holds until a leadership of that epoch or a later one has begun, whichever broker's,
and however many attempts that takes; the next leadership is as the topic's settings say.
"""

from collections.abc import Mapping
from typing import Final

UNCLEAN: Final = "quire.unclean"


def unclean_since(stored: Mapping[str, str], partition: int, epoch: int) -> int | None:
    """Return the epoch from which on an operator asked for an unclean leadership of a partition;
    None if none was asked for up to `epoch`.
    """
    asked = unclean_epochs(stored).get(partition)
    return asked if asked is not None and asked <= epoch else None


def unclean_epochs(stored: Mapping[str, str]) -> dict[int, int]:
    """Return the epochs that were asked for, by partition."""
    pairs = (each.split(":") for each in stored.get(UNCLEAN, "").split(",") if each)
    return {int(partition): int(epoch) for partition, epoch in pairs}


def with_unclean(stored: Mapping[str, str], asked: Mapping[int, int]) -> dict[str, str]:
    """Return a topic's stored settings with the given partitions' epochs noted; earlier notes of
    other partitions stay.
    """
    epochs = unclean_epochs(stored) | dict(asked)
    noted = ",".join(f"{partition}:{epoch}" for partition, epoch in sorted(epochs.items()))
    return {**stored, UNCLEAN: noted}
