"""One reader of a small ledger that others write and close; each call is recorded.

Leaves the choice of ledgers to `contender`.
"""

import asyncio
from contextlib import aclosing
from random import Random
from typing import Final

from ledger_client import EntryNotFoundError, LedgerError, LedgerReader
from tests.judge.operations import Operation, OperationFile, value_of

READ_ENTRIES_MAX: Final = 20
TAIL_S: Final = 0.5


class Reading:
    """One reader of a ledger."""

    def __init__(self, file: OperationFile, reader: LedgerReader, handle: str) -> None:
        self.reader = reader
        self._file = file
        self._handle = handle

    async def read_some(self, rng: Random) -> None:
        """Do one of the things that readers do."""
        last = self.reader.last_confirmed
        draw = rng.random()
        if draw < 0.4:
            await self._refresh()
        elif draw < 0.75 and last >= 0:
            first = rng.randrange(last + 1)
            await self.read(first, min(last, first + rng.randrange(READ_ENTRIES_MAX)))
        elif draw < 0.9:
            await self._tail(rng.randrange(last + 2))
        else:
            await self.expect_absent(last + 1 + rng.randrange(3))

    async def read(self, first: int, last: int) -> bool:
        """Read entries that the reader shows as confirmed; return whether that succeeded."""
        reading = self._begin_read(first)
        values: list[str] = []
        try:
            async for batch in self.reader.read(first, last):
                values += [value_of(entry.data) for entry in batch]
        except EntryNotFoundError as error:
            missing = error.entry_id if error.entry_id is not None else first
            self._end_absent(reading, missing, closed=False)
            return False
        except LedgerError:
            return False
        self._file.end(reading, "ok", values=values)
        return True

    async def expect_absent(self, entry_id: int) -> None:
        """Read an entry behind the last confirmed one."""
        was_closed = self.reader.is_closed
        reading = self._begin_read(entry_id)
        try:
            entry = await self.reader.read_entry(entry_id)
        except EntryNotFoundError:
            self._end_absent(reading, entry_id, closed=was_closed)
        except LedgerError:
            return
        else:
            self._file.end(reading, "ok", values=[value_of(entry.data)])

    async def _refresh(self) -> None:
        refresh = self._file.begin("lac", self.reader.id, self._handle)
        try:
            last = await self.reader.refresh_last_confirmed()
        except LedgerError:
            return
        self._file.end(refresh, "ok", last=last, closed=self.reader.is_closed)

    async def _tail(self, first: int) -> None:
        """Wait for the next entries, a short time."""
        reading = self._begin_read(first)
        try:
            async with asyncio.timeout(TAIL_S), aclosing(self.reader.tail(first)) as batches:
                async for batch in batches:
                    values = [value_of(entry.data) for entry in batch]
                    self._file.end(reading, "ok", first=batch.first_entry_id, values=values)
                    return
        except (LedgerError, TimeoutError):
            return

    def _begin_read(self, first: int) -> Operation:
        return self._file.begin("read", self.reader.id, self._handle, first=first)

    def _end_absent(self, reading: Operation, entry_id: int, *, closed: bool) -> None:
        """End a read that found no entry with this id."""
        start_ns, ledger_id = reading.start_ns, self.reader.id
        absent = self._file.began(start_ns, "absent", ledger_id, self._handle, first=entry_id)
        self._file.end(absent, "ok", closed=closed)
