"""Directory of live bookies for a client.

Leaves the choice among them to the client's placement, registration to `registrar.py`, and
following the nodes to `child_values.py`.

Invariants: a bookie is dropped only when a successful read shows that it is gone, never because the
store does not answer; a bookie that left is reported at once; each bookie that joined or changed is
read once, within `jitter_s`; a node whose registration has another bookie's id is ignored.

Source: metadata design, "Registration"; protocol rules 2.1 and 5.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final

from metadata.callbacks import Callbacks
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.paths import BOOKIES
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.child_values import ChildValues
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import Cancel, MetadataStore

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


class BookieDirectory:
    """Registrations of all live bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random, *, jitter_s: float = JITTER_S) -> None:
        self._bookies: dict[BookieId, BookieRegistration] = {}
        self._callbacks = Callbacks[DirectoryEvent]()
        self._values = ChildValues(
            store, BOOKIES, rng, on_value=self._put, on_gone=self._drop, jitter_s=jitter_s
        )

    @property
    def bookies(self) -> Mapping[BookieId, BookieRegistration]:
        """The live bookies as last read, including those that are not writable."""
        return MappingProxyType(self._bookies)

    def on_event(self, callback: Callable[[DirectoryEvent], None]) -> Cancel:
        """Call back after each change, once `bookies` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every registration, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current registrations, including those whose read is delayed. For a caller that
        would otherwise fail because it finds too few bookies. Raises MetadataError.
        """
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `bookies` keeps the last known registrations."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        path = f"{BOOKIES}/{name}"
        registration = REGISTRATION_CODEC.unpack(path, unpack_held(path, value).content)
        if registration.bookie_id != name:
            raise MetadataFormatError(path, f"it describes bookie {registration.bookie_id}")
        known = self._bookies.get(registration.bookie_id)
        if known == registration:
            return
        self._bookies[registration.bookie_id] = registration
        self._callbacks.notify(
            BookieJoined(registration) if known is None else BookieChanged(registration)
        )

    def _drop(self, name: str) -> None:
        bookie_id = BookieId(name)
        if self._bookies.pop(bookie_id, None) is not None:
            self._callbacks.notify(BookieLeft(bookie_id))
