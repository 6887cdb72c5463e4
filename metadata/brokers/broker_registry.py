"""Registration of this broker, and the directory of live brokers.

Leaves holding the node to `ephemeral.py`, following the nodes of other brokers to
`metadata.store.records`, and the content of a registration to `broker_registration.py`.

Invariants: one live process holds a broker's id; a broker is dropped only when a successful read
shows that it is gone.

Source: topics design, "What a takeover does"; protocol rule 2.1.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from metadata.brokers.broker_registration import BROKER_CODEC, BrokerRegistration, Listener
from metadata.errors import MetadataFormatError, NameHeldError
from metadata.paths import BROKERS, broker_path
from metadata.store.ephemeral import HELD_WAIT_S, EphemeralKeeper, unpack_held
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import ChildView, NodeNames
from metadata.topics.topic import BROKER_ID_MAX

__all__ = ["BrokerDirectory", "BrokerRegistrar", "BrokerRegistration", "Listener"]


def _broker_id_of(name: str) -> int | None:
    is_number = name.isdecimal() and len(name) <= len(str(BROKER_ID_MAX))
    return int(name) if is_number and str(int(name)) == name else None


_BROKERS_BY_ID: Final = NodeNames[int](str, _broker_id_of)


class BrokerRegistrar:
    """Registration of one broker, kept across sessions.

    `on_lost` is called when another process holds the id: this one must stop serving.
    """

    def __init__(
        self,
        store: MetadataStore,
        registration: BrokerRegistration,
        rng: Random,
        *,
        dead_incarnations: tuple[bytes, ...] = (),
        on_lost: Callable[[NameHeldError], None] | None = None,
    ) -> None:
        self._broker_id = registration.broker_id
        self._keeper = EphemeralKeeper(
            store,
            broker_path(registration.broker_id),
            BROKER_CODEC.pack("a broker", registration),
            rng,
            dead_incarnations=dead_incarnations,
            on_lost=on_lost,
        )

    async def start(self, *, held_wait_s: float = HELD_WAIT_S) -> None:
        """Register. Raises NameHeldError if another live process still holds the id after
        `held_wait_s`, StoreUnavailableError when the store does not answer.
        """
        await self._keeper.start(held_wait_s=held_wait_s)

    def update(self, registration: BrokerRegistration) -> None:
        """Change the registration as soon as possible."""
        assert registration.broker_id == self._broker_id, "an id is for life"
        self._keeper.set_content(BROKER_CODEC.pack("a broker", registration))

    async def aclose(self) -> None:
        """Remove the registration."""
        await self._keeper.aclose()


class BrokerDirectory(ChildView[int, BrokerRegistration]):
    """Registrations of all live brokers, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(store, BROKERS, _BROKERS_BY_ID, _registration_of, rng)

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """The live brokers as last read, including those that are leaving."""
        return self.records

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `brokers` shows it."""
        return self.on_record(lambda _id, _before, _after: callback())


def _registration_of(key: int, value: bytes) -> BrokerRegistration:
    path = broker_path(key)
    held = unpack_held(path, value)
    registration = BROKER_CODEC.unpack(path, held.content, incarnation=held.incarnation)
    if registration.broker_id != key:
        raise MetadataFormatError(path, f"it describes broker {registration.broker_id}")
    return registration
