"""One small ledger that a contender writes, and its writer; each call is recorded.

Leaves the choice of ledgers, and what happens to them besides, to `contender`.

Invariant: an append is recorded with its entry id before it is sent.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from ledger_client import LedgerError, LedgerWriter
from metadata.ledgers.ledger_metadata import LedgerState
from tests.judge.operations import Operation, OperationFile, now_ns, value_of

APPENDS_MAX: Final = 120
"""Calls of one writer; each has at most `TOGETHER_MAX` entries."""
TOGETHER_MAX: Final = 6
UNDER_WAY_MAX: Final = 8
PADDING_BYTES_MAX: Final = 1_500
GAP_S_MAX: Final = 0.03


class Writing:
    """One ledger and its writer."""

    def __init__(self, file: OperationFile, ledger: LedgerWriter, handle: str, rng: Random) -> None:
        self.handle = handle
        self._file = file
        self._ledger = ledger
        self._rng = rng
        self._under_way: list[asyncio.Task[bool]] = []

    async def fill(self, stopping: asyncio.Event) -> None:
        """Append until the ledger has enough entries, or the writer fails."""
        for _ in range(self._rng.randrange(1, APPENDS_MAX)):
            if stopping.is_set() or not await self.append_some():
                break
            self._show_lac()
            await asyncio.sleep(self._rng.uniform(0, GAP_S_MAX))
        await asyncio.gather(*self._under_way)

    async def append_some(self) -> bool:
        """Append a few entries; return whether earlier appends that ended have succeeded."""
        payloads = [self._payload() for _ in range(self._rng.randrange(1, TOGETHER_MAX + 1))]
        if self._rng.random() < 0.2:
            is_well = all(await asyncio.gather(*self._under_way))
            self._under_way = []
            return await self._append_many(payloads) and is_well
        self._under_way.append(asyncio.create_task(self._append_each(payloads)))
        await asyncio.sleep(0)
        if len(self._under_way) < self._rng.randrange(1, UNDER_WAY_MAX + 1):
            return True
        return await self._under_way.pop(0)

    async def close(self) -> None:
        """Close the ledger, sometimes without waiting for what is pending."""
        closing = self._file.begin("close", self._ledger.id, self.handle)
        try:
            if self._rng.random() < 0.5:
                await self._ledger.aclose()
            else:
                await self._ledger.abort()
        except LedgerError:
            self._file.end(closing, "unknown")
        else:
            info = self._ledger.info  # an abort returns also when another client ended the ledger
            if info.state is LedgerState.CLOSED:
                self._file.end(closing, "ok", last=info.last_entry_id)
            else:
                self._file.end(closing, "unknown")
        await asyncio.gather(*self._under_way)

    def _payload(self) -> bytes:
        """Return a payload that no other entry has."""
        padding = self._rng.randrange(PADDING_BYTES_MAX)
        return f"{self.handle}/{now_ns()}/{self._rng.getrandbits(64)}/".encode() + bytes(padding)

    async def _append_each(self, payloads: Sequence[bytes]) -> bool:
        """Append entries in one iteration of the loop; return whether all succeeded.

        Their lines are written when their ids are known: they are sent in the next iteration.
        """
        begun: list[tuple[Operation, asyncio.Future[int]]] = []
        is_well = True
        for payload in payloads:
            start_ns, values = now_ns(), [value_of(payload)]
            try:
                future = self._ledger.append_nowait(payload)
            except LedgerError as error:
                self._end_refused(self._began(start_ns, None, values), error)
                is_well = False
                break
            operation = self._began(start_ns, self._ledger.last_pushed, values)
            self._file.write(operation)
            begun.append((operation, future))
        for operation, future in begun:
            try:
                first = await future
            except LedgerError as error:
                self._end_refused(operation, error)
                is_well = False
            else:
                self._file.end(operation, "ok", first=first)
        return is_well

    async def _append_many(self, payloads: list[bytes]) -> bool:
        """Append entries while no other append is under way, so that their ids are known."""
        first, values = self._ledger.last_pushed + 1, [value_of(payload) for payload in payloads]
        operation = self._began(now_ns(), first, values)
        self._file.write(operation)
        try:
            ids = await self._ledger.append_many(payloads)
        except LedgerError as error:
            self._end_refused(operation, error)
            return False
        self._file.end(operation, "ok", first=ids.start)
        return True

    def _began(self, start_ns: int, first: int | None, values: list[str]) -> Operation:
        ledger_id, facts = self._ledger.id, {"first": first, "values": values}
        return self._file.began(start_ns, "append", ledger_id, self.handle, **facts)

    def _end_refused(self, operation: Operation, error: LedgerError) -> None:
        outcome: Final = "unknown" if error.outcome == "unknown" else "fail"
        self._file.end(operation, outcome, confirmed=error.confirmed_count)

    def _show_lac(self) -> None:
        showing = self._file.begin("lac", self._ledger.id, self.handle)
        self._file.end(showing, "ok", last=self._ledger.last_confirmed)
