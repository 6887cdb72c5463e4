"""What a bookie says of itself: its registration, kept up to date, and log lines about its
conditions.

The registration says that it is up, whether it is writable, and its free space. Leaves the session,
and the rate of updates, to `metadata.registry.registrar`, and the conditions to
`bookie.storage.writability`.

Source: protocol rule 2.1; metadata design, "Registration".
"""

import asyncio
from dataclasses import replace
from typing import Final

from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.writability import ADVICE, ConditionChange, Writability, is_condition
from metadata.registry.registrar import BookieRegistrar
from metadata.registry.registration import BookieRegistration
from metadata.store.ephemeral import HELD_WAIT_S
from quire.server.server_log import ServerLog

REFRESH_INTERVAL_S: Final = 10.0


class Registration:
    """Registration of one bookie, from `start` to `leave`."""

    def __init__(
        self, storage: BookieStorage, registrar: BookieRegistrar, first: BookieRegistration
    ) -> None:
        self._storage = storage
        self._registrar = registrar
        self._first = first
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False

    async def start(self) -> None:
        """Register. Raises NameHeldError when another live process holds the bookie's id."""
        await self._registrar.start(held_wait_s=HELD_WAIT_S)
        self._storage.writability.on_change(lambda _: self._refresh())
        self._refresh_and_schedule()

    def withdraw(self) -> None:
        """Remove the registration until `restore`, so that writers use other bookies."""
        self._registrar.want(registered=False)

    def restore(self) -> None:
        """Register again."""
        self._registrar.want(registered=True)

    async def leave(self) -> None:
        """Remove the registration, so that writers use other bookies."""
        self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        await self._registrar.aclose()

    def _refresh_and_schedule(self) -> None:
        self._refresh()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFRESH_INTERVAL_S, self._refresh_and_schedule)

    def _refresh(self) -> None:
        if not self._is_leaving:
            self._registrar.update(describe(self._storage, self._first))


def describe(storage: BookieStorage, first: BookieRegistration) -> BookieRegistration:
    """Return the current registration."""
    statistics = storage.statistics()
    others = [feature for feature in first.features if not is_condition(feature)]
    return replace(
        first,
        capacity_bytes=statistics.disk_total_bytes,
        free_bytes=statistics.disk_free_bytes,
        writable=storage.is_offered,
        features=(*others, *storage.writability.features()),
    )


def report_conditions(writability: Writability, log: ServerLog) -> None:
    """Log the active conditions, and from now on each condition that begins or ends."""

    def report(change: ConditionChange) -> None:
        condition, lasted_s = change.condition, change.lasted_s
        values = {"reason": condition.reason.value, "writable": writability.is_writable}
        if condition.where:
            values["where"] = condition.where
        if lasted_s is None:
            advice = ADVICE[condition.reason]
            log.warning(
                "read-only" if condition.turns_away else "limbo",
                **values,
                detail=condition.text,
                try_next=advice,
            )
        else:
            log.info(
                "read-only ended" if condition.turns_away else "limbo ended",
                **values,
                lasted_s=round(lasted_s, 1),
            )

    for condition in writability.conditions():
        report(ConditionChange(condition, None))
    writability.on_change(report)
