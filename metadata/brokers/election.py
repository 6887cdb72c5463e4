"""Election of one broker as the controller.

Leaves the election itself to `metadata.store.election`, and what a controller does to the brokers.
A controller changes topics by compare-and-set alone, so two brokers that both act as controller for
a moment do no harm.

Invariants: those of `metadata.store.election`.

Source: topics design, "The mapping", "What a takeover does"; protocol rule 1.2.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from metadata.paths import CONTROLLER
from metadata.records import codec_of_one, whole
from metadata.store.election import Election
from metadata.store.interface import Cancel, MetadataStore
from metadata.topics.topic import BROKER_ID_MAX

CONTROLLER_CODEC: Final = codec_of_one("broker_id", whole(0, BROKER_ID_MAX))


class ControllerElection:
    """Candidacy of one broker, from `start` to `aclose`. It stays the controller while it can."""

    def __init__(self, store: MetadataStore, broker_id: int, rng: Random) -> None:
        self._election = Election(store, CONTROLLER, CONTROLLER_CODEC, broker_id, rng)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as its session shows."""
        return self._election.is_elected

    @property
    def controller_id(self) -> int | None:
        """Id of the controller as last known; None when there is none."""
        return self._election.elected

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back when `controller_id` or `is_controller` may have changed."""
        return self._election.on_change(callback)

    async def start(self) -> None:
        """Become a candidate; `on_change` reports the outcome."""
        await self._election.start()

    async def aclose(self) -> None:
        """Stop being the controller: at once if the store answers, else when the session ends."""
        await self._election.aclose()
