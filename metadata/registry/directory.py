"""Directory of live bookies for a client.

Leaves the choice among them to the client's placement, registration to `registrar.py`, and
following the nodes to `metadata.store.records`.

Invariants: a bookie is dropped only when a successful read shows that it is gone, never because the
store does not answer; a bookie that left is reported at once; each bookie that joined or changed is
read once, within `jitter_s`; a node whose registration has another bookie's id is ignored.

Source: metadata design, "Registration"; protocol rules 2.1 and 5.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.paths import BOOKIES, bookie_path
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import ChildView, NodeNames

JITTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class BookieJoined:
    """A bookie has come up."""

    registration: BookieRegistration


@dataclass(frozen=True, slots=True)
class BookieChanged:
    """A bookie changed its registration, or registered again."""

    registration: BookieRegistration


@dataclass(frozen=True, slots=True)
class BookieLeft:
    """A bookie is gone."""

    bookie_id: BookieId


DirectoryEvent = BookieJoined | BookieChanged | BookieLeft


class BookieDirectory(ChildView[BookieId, BookieRegistration]):
    """Registrations of all live bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random, *, jitter_s: float = JITTER_S) -> None:
        super().__init__(
            store, BOOKIES, NodeNames(str, BookieId), _registration_of, rng, jitter_s=jitter_s
        )

    @property
    def bookies(self) -> Mapping[BookieId, BookieRegistration]:
        """The live bookies as last read, including those that are not writable."""
        return self.records

    def on_event(self, callback: Callable[[DirectoryEvent], None]) -> Cancel:
        """Call back after each change, once `bookies` shows it."""

        def note(
            bookie_id: BookieId,
            before: BookieRegistration | None,
            after: BookieRegistration | None,
        ) -> None:
            if after is None:
                callback(BookieLeft(bookie_id))
            else:
                callback(BookieJoined(after) if before is None else BookieChanged(after))

        return self.on_record(note)


def _registration_of(key: BookieId, value: bytes) -> BookieRegistration:
    path = bookie_path(key)
    registration = REGISTRATION_CODEC.unpack(path, unpack_held(path, value).content)
    if registration.bookie_id != key:
        raise MetadataFormatError(path, f"it describes bookie {registration.bookie_id}")
    return registration
