"""Registration of this broker, and the directory of live brokers.

Leaves holding the node to `ephemeral.py`, following the nodes of other brokers to
`child_values.py`, and the content of a registration to `broker_registration.py`.

Invariants: one live process holds a broker's id; a broker is dropped only when a successful read
shows that it is gone.

Source: topics design, "What a takeover does"; protocol rule 2.1.
"""

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

from metadata.brokers.broker_registration import BROKER_CODEC, BrokerRegistration, Listener
from metadata.callbacks import Callbacks
from metadata.errors import MetadataFormatError, NameHeldError
from metadata.paths import BROKERS, broker_path
from metadata.store.child_values import ChildValues
from metadata.store.ephemeral import HELD_WAIT_S, EphemeralKeeper, unpack_held
from metadata.store.interface import Cancel, MetadataStore

__all__ = ["BrokerDirectory", "BrokerRegistrar", "BrokerRegistration", "Listener"]


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


class BrokerDirectory:
    """Registrations of all live brokers, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._brokers: dict[int, BrokerRegistration] = {}
        self._callbacks = Callbacks[()]()
        self._values = ChildValues(store, BROKERS, rng, on_value=self._put, on_gone=self._drop)

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """The live brokers as last read, including those that are leaving."""
        return MappingProxyType(self._brokers)

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `brokers` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every registration, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current registrations. Raises MetadataError."""
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `brokers` keeps the last known registrations."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        path = f"{BROKERS}/{name}"
        held = unpack_held(path, value)
        registration = BROKER_CODEC.unpack(path, held.content, incarnation=held.incarnation)
        if str(registration.broker_id) != name:
            raise MetadataFormatError(path, f"it describes broker {registration.broker_id}")
        if self._brokers.get(registration.broker_id) != registration:
            self._brokers[registration.broker_id] = registration
            self._callbacks.notify()

    def _drop(self, name: str) -> None:
        broker_id = next((each for each in self._brokers if str(each) == name), None)
        if broker_id is not None:  # otherwise nothing was read from this node
            del self._brokers[broker_id]
            self._callbacks.notify()
