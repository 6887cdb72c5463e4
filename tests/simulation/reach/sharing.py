"""Several tasks that append to one writer at the same time, some of which are cancelled.

Leaves creating and ending the ledger to `tests.simulation.writing`, and judging the results to
`tests.simulation.checkers.callers`.

Invariants: every call has payloads of its own. A cancellation hits a call that waits in line, that
waits for its confirmation, or that has its result and was not resumed yet.
Source: api design, "Cancelling"; protocol rule 4.1.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from ledger_client import LedgerError, LedgerWriter
from tests.simulation.checkers.callers import CallersChecker
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel

RANGE_MAX: Final = 12
CANCELS_SHARE: Final = 0.2
"""Share of the calls whose end cancels another call."""
TURNS_MAX: Final = 3
"""Loop iterations between the end of a call and the cancellation of another one."""
TIMEOUTS_S: Final = (None, None, 0.002, 0.05, 5.0)
SOURCE_PAUSE_S: Final = 0.01


class SharedAppends:
    """Tasks that share one writer until enough entries are appended."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: LedgerModel,
        writer: LedgerWriter,
        rng: random.Random,
        fail: Callable[[LedgerError, float | None], bool],
    ) -> None:
        """`fail` records the error of a call with this limit, and returns whether the callers may
        go on.
        """
        self._cluster = cluster
        self._ledger = ledger
        self._writer = writer
        self._rng = rng
        self._fail = fail
        self._calls = CallersChecker(cluster.model, ledger)
        self._wanted = 0
        self._payload_count = 0
        self._under_way: dict[int, asyncio.Task[None]] = {}
        """By caller: the call that it makes now."""

    async def run(self, wanted: int) -> None:
        """Append entries, or stop when the writer fails."""
        self._wanted = wanted
        count = self._cluster.plan.reach.callers
        callers = [asyncio.create_task(self._call_repeatedly(number)) for number in range(count)]
        try:
            await asyncio.gather(*callers)
        finally:
            for task in (*callers, *self._under_way.values()):
                task.cancel()

    async def _call_repeatedly(self, number: int) -> None:
        gap_s = self._cluster.plan.workload.append_gap_s
        while self._wanted > 0 and not self._cluster.is_over:
            call = asyncio.create_task(self._call())
            self._under_way[number] = call
            await asyncio.gather(call, return_exceptions=True)
            del self._under_way[number]
            if not call.cancelled():
                call.result()
            await asyncio.sleep(gap_s * self._rng.random())

    async def _call(self) -> None:
        """Make one call in one of the ways in which the writer can be called."""
        style = self._rng.randrange(8)
        count = self._rng.randint(2, RANGE_MAX) if style < 2 else 1
        payloads = [self._payload() for _ in range(count)]
        timeout = self._rng.choice(TIMEOUTS_S)
        self._wanted -= count
        call = self._calls.begin(payloads)
        ids: Sequence[int]
        try:
            if style == 0:
                ids = await self._writer.append_many(payloads, timeout=timeout)
            elif style == 1:
                ids = await self._writer.append_many(self._source(payloads), timeout=timeout)
            elif style == 2:
                ids = (await self._writer.append_nowait(payloads[0]),)
            else:
                ids = (await self._writer.append(payloads[0], timeout=timeout),)
        except asyncio.CancelledError:
            self._calls.cancel(call)
            raise
        except LedgerError as error:
            self._calls.fail(call, error)
            if not self._fail(error, None if style == 2 else timeout):
                self._wanted = 0
        else:
            self._calls.succeed(call, ids)
            for entry_id in ids:
                self._cluster.note_confirmed(self._ledger, entry_id, entry_id)
        if self._rng.random() < CANCELS_SHARE:
            self._cancel_after(self._rng.randint(0, TURNS_MAX))

    async def _source(self, payloads: Sequence[bytes]) -> AsyncIterator[bytes]:
        for payload in payloads:
            if self._rng.random() < 0.3:
                await asyncio.sleep(SOURCE_PAUSE_S * self._rng.random())
            yield payload

    def _payload(self) -> bytes:
        self._payload_count += 1
        head = b"<%d/%d>" % (self._ledger.ledger_id, self._payload_count)
        size = self._rng.randrange(self._cluster.plan.workload.entry_bytes_max)
        return head + self._rng.randbytes(max(0, size - len(head)))

    def _cancel_after(self, turns: int) -> None:
        """Cancel one of the calls that are under way after some loop iterations."""
        if turns:
            asyncio.get_running_loop().call_soon(self._cancel_after, turns - 1)
            return
        calls = [each for each in self._under_way.values() if not each.done()]
        if calls:
            self._rng.choice(calls).cancel()
