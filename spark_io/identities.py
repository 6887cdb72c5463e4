"""Identities of what a stream reads, in the offsets of its checkpoint.

Leaves positions to `ledgers.positions` and `topics.topic_offsets`.

A chain, a ledger or a topic that is deleted and created again under its name has another identity:
the creation token of the chain or of the ledger, or the topic's id. A position in the first one
means nothing in the second one.

Format: an offset has the key `$ids` beside its positions: an object with the identity, in
hexadecimal digits, of each chain, ledger or topic by its name. No ledger id, topic name or field of
a chain's position contains a `$`. Example:
{"link": 3, "ledger": 0, "entry": 12, "$ids": {"events": "5f0c..."}}. Only an offset that a user
gives as an option may lack `$ids`.

Invariant: a recorded position is used only with what it was recorded for.

Source: Spark design, "Reading".
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_io.errors import OffsetError, OptionError, RecreatedError

IDS_KEY: Final = "$ids"

Identities = Mapping[str, str]
"""Identity of each chain, ledger or topic, by name."""


_log = logging.getLogger(__name__)


def with_identities(positions: Mapping[str, object], identities: Identities) -> dict[str, object]:
    """Return an offset: positions, and the identities of what they are in."""
    return {**positions, IDS_KEY: dict(sorted(identities.items()))}


def separated(offset: object) -> tuple[dict[str, object], Identities]:
    """Return the positions of an offset, and its identities. Raises OffsetError."""
    if not isinstance(offset, Mapping):
        raise OffsetError(f"{json.dumps(offset)} is not a JSON object")
    positions = dict(offset)
    recorded = positions.pop(IDS_KEY, {})
    if not isinstance(recorded, Mapping) or not all(
        isinstance(each, str) for each in recorded.values()
    ):
        raise OffsetError(f"{json.dumps(offset)}: {IDS_KEY} is not an object of names and ids")
    return positions, recorded


def check_option(option: str, kind: str, recorded: Identities, present: Identities) -> None:
    """Compare the identities in the offsets of an option, if it has some, with the present ones.
    Raises OptionError.
    """
    for name, identity in recorded.items():
        if present.get(name) != identity:
            raise OptionError(
                option,
                f"{IDS_KEY} names another {kind} {name!r} than the one that is read: it was "
                f"deleted and created again since. Give positions in the present {kind}, without "
                f"{IDS_KEY}",
            )


@dataclass(frozen=True, slots=True)
class IdentityCheck:
    """Comparison of what a stream reads now with the identities in an offset."""

    kind: str
    """Word for messages: chain, ledger or topic."""
    present: Identities
    fail_on_data_loss: bool

    def recreated(self, recorded: Identities, names: Iterable[str]) -> list[str]:
        """Return those of `names` that were deleted and created again since an offset recorded
        their identities. Names that are not read now are left out.

        Raises RecreatedError if there is one and data loss is not allowed; raises OffsetError if
        the offset has no identity of something that it names.
        """
        changed: list[str] = []
        for name in names:
            now = self.present.get(name)
            if now is None:
                continue
            before = recorded.get(name)
            if before is None:
                raise OffsetError(
                    f"the checkpoint does not record the identity of {self.kind} {name!r}: begin "
                    "with a new checkpoint"
                )
            if before != now:
                if self.fail_on_data_loss:
                    raise RecreatedError(self.kind, name, "the checkpoint was written")
                changed.append(name)
        return changed

    def log(self, changed: Iterable[str]) -> None:
        """Log which names were created again, so that positions in the old ones are left out."""
        for name in dict.fromkeys(changed):
            _log.warning(
                "%s %r was deleted and created again: left out what was not read before; the "
                "query continues at the start of the present %s",
                self.kind,
                name,
                self.kind,
            )
