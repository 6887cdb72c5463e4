"""Certainty that no other broker has claimed a partition, for answers that must not be old.

Leaves claims to `ledger_list`, and the broker's lease, which needs no question, to `session_lease`.

A leader that was replaced while its session lives does not know it until the news arrives. What it
writes fails, because its ledger is fenced; what it answers from memory does not.

Invariant: a check counts only for callers that came before it began. So callers that come while
one runs share the next one, and a partition has at most one question at a time under way.

Source: protocol rule 1.2.
"""

import asyncio
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.ledger_list import LedgerList
from metadata.errors import MetadataError

CHECK_S_MAX: Final = 2.0
"""Maximum time of one check, in seconds."""


class LeadCheck:
    """Checks of one leader."""

    def __init__(self, ledger_list: LedgerList) -> None:
        self._ledger_list = ledger_list
        self._running = asyncio.Lock()
        self._begun = 0
        self._leads: bool | None = None
        """Outcome of the last check; None if it had none."""

    async def leads(self) -> bool:
        """Return whether no other broker had claimed the partition before this call.

        Raises TopicError COORDINATOR_LOAD_IN_PROGRESS, on which clients retry, if the metadata
        service does not answer.
        """
        needed = self._begun + 1
        async with self._running:
            if self._begun < needed:
                self._begun += 1
                self._leads = None
                self._leads = await self._ask()
            if self._leads is None:
                text = "whether this broker is still the coordinator is not known now: retry"
                raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
            return self._leads

    async def _ask(self) -> bool | None:
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                return await self._ledger_list.is_held()
        except (MetadataError, TimeoutError):
            return None
