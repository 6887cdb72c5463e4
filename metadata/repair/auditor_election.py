"""Election of one process as the auditor.

Leaves the election itself to `metadata.store.election`, and what an auditor does to `quire.repair`.
An auditor publishes jobs and changes states of bookies by compare-and-set alone, so two processes
that both act as auditor for a moment do no harm.

Invariants: those of `metadata.store.election`.

Source: protocol rules 1.2 and 9.1.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from metadata.paths import AUDITOR
from metadata.records import TEXT, codec_of_one
from metadata.store.election import Election
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import Cancel, MetadataStore, find

AUDITOR_CODEC: Final = codec_of_one("auditor_id", TEXT)


class AuditorElection:
    """Candidacy of one process, from `start` to `aclose`. It stays the auditor while it can."""

    def __init__(self, store: MetadataStore, candidate_id: str, rng: Random) -> None:
        self._election = Election(store, AUDITOR, AUDITOR_CODEC, candidate_id, rng)

    @property
    def is_auditor(self) -> bool:
        """Whether this process is the auditor, as far as its session shows."""
        return self._election.is_elected

    @property
    def auditor_id(self) -> str | None:
        """Id of the auditor as last known; None when there is none."""
        return self._election.elected

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back when `auditor_id` or `is_auditor` may have changed."""
        return self._election.on_change(callback)

    async def start(self) -> None:
        """Become a candidate; `on_change` reports the outcome."""
        await self._election.start()

    async def aclose(self) -> None:
        """Stop being the auditor: at once if the store answers, else when the session ends."""
        await self._election.aclose()


async def read_auditor_id(store: MetadataStore) -> str | None:
    """Return the id of the auditor with a fresh read; None if there is none. Raises
    MetadataError.
    """
    stored = await find(store, AUDITOR)
    if stored is None:
        return None
    return AUDITOR_CODEC.unpack(AUDITOR, unpack_held(AUDITOR, stored.value).content)
