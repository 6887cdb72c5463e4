"""What the metadata and a bookie itself report about it, for its page.

Leaves figures to `bookie_figures`.

Invariant: a bookie that does not answer within ADMIN_S delays the page by at most that time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle
from metadata.repair.scrub import ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from quire.console.context import ConsoleContext
from quire.console.operations.bookie_figures import (
    Figure,
    SyncTimes,
    conditions_of,
    storage_figures,
    sync_times,
)
from quire.console.paging import ROWS_PER_PAGE, Page
from quire.operate.admin_api import AdminApiError
from quire.operate.as_json import state_of
from quire.operate.bookie_changes import records_of
from quire.operate.fields import Json

ADMIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class BookieAnswers:
    """What the bookie's admin server answered."""

    figures: Sequence[Figure] = ()
    conditions: Sequence[Mapping[str, Json]] = ()
    syncs: SyncTimes | None = None
    ledgers: Page[int] = field(default_factory=lambda: Page([], 0, None))
    failure: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class BookieReport:
    """Everything that a bookie's page shows."""

    bookie_id: BookieId
    registration: BookieRegistration | None
    """None while it is not up."""
    record: BookieLifecycle
    scrub: ScrubRecord
    settings: RepairSettings
    answers: BookieAnswers

    @property
    def state(self) -> str:
        """Its state in a word."""
        return state_of(self.registration, self.record.state)


async def read_report(context: ConsoleContext, wanted: str, first_ledger: int) -> BookieReport:
    """Read the report of a bookie, with its ledgers from an id on. Raises NoSuchBookieError."""
    cluster = context.cluster
    ((bookie_id, record),) = (await records_of(cluster, [wanted])).items()
    registration = cluster.directory.bookies.get(bookie_id)
    return BookieReport(
        bookie_id,
        registration,
        record,
        await ScrubStore(cluster.store, cluster.rng).get(bookie_id),
        await RepairSettingsStore(cluster.store, cluster.rng).get(),
        await _answers(context, registration, first_ledger),
    )


async def _answers(
    context: ConsoleContext, registration: BookieRegistration | None, first_ledger: int
) -> BookieAnswers:
    if registration is None or not registration.admin_url:
        return BookieAnswers()
    url, servers = registration.admin_url, context.admin_servers
    listed = f"{url}/api/v1/ledgers?after={first_ledger - 1}&limit={ROWS_PER_PAGE}"
    try:
        state, ledgers, metrics = await asyncio.gather(
            servers.get_json(f"{url}/api/v1/state", ADMIN_S),
            servers.get_json(listed, ADMIN_S),
            servers.get_text(f"{url}/metrics", ADMIN_S),
        )
    except AdminApiError as error:
        return BookieAnswers(failure=str(error))
    return BookieAnswers(
        storage_figures(state),
        conditions_of(state),
        sync_times(metrics),
        _page_of(ledgers, first_ledger),
    )


def _page_of(answer: Json, first_ledger: int) -> Page[int]:
    rows = answer.get("ledgers") if isinstance(answer, Mapping) else None
    after = answer.get("next_after") if isinstance(answer, Mapping) else None
    next_start = after + 1 if isinstance(after, int) else None
    ids = (_id_of(each) for each in rows) if isinstance(rows, list) else ()
    return Page([each for each in ids if each is not None], first_ledger, next_start)


def _id_of(row: Json) -> int | None:
    found = row.get("ledger_id") if isinstance(row, Mapping) else row
    return found if isinstance(found, int) else None
