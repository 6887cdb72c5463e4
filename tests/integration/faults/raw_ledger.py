"""Ledgers in states that a writer leaves only if it stops at one exact moment.

Entries are put on single bookies by the wire protocol; the metadata is stored as a writer does it.
Leaves connections to `tests.campaign.direct`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from bookie.wire.batch import build_batch
from bookie.wire.messages import LacReply, ReadLac, Status, WriteLac
from ledger_client.bookies.connection_calls import CallFailure
from ledger_client.digest import LedgerKeys
from metadata.ids import NO_ENTRY, UPDATE_TOKEN_BYTES, BookieId, ClientId, EntryId, UpdateToken
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from tests.campaign.direct import Direct, read_copies

TIMEOUT_S: Final = 15.0
Outcome = Status | CallFailure


class OneAnswer:
    """Sink of one add."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Record the answer."""
        self.outcome.set_result(status)

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Record the failure."""
        self.outcome.set_result(failure)


@dataclass(frozen=True, slots=True)
class RawLedger:
    """Ledger whose copies a test places one by one."""

    direct: Direct
    metadata: LedgerMetadata
    keys: LedgerKeys

    @property
    def id(self) -> int:
        """Id of the ledger."""
        return self.metadata.ledger_id

    def send(
        self,
        bookie_id: BookieId,
        first: int,
        payloads: Sequence[bytes],
        *,
        lac: int = NO_ENTRY,
        length_before: int = 0,
    ) -> "asyncio.Future[Outcome]":
        """Send a batch to one bookie; return the future of its answer."""
        keys, sink = self.keys, OneAnswer()
        batch = build_batch(
            keys.ledger_id, EntryId(first), EntryId(lac), length_before, payloads, keys.seed
        )
        self.direct.pool.add(
            bookie_id, keys.ledger_id, batch, EntryId(first), recovery=False, sink=sink
        )
        return sink.outcome

    async def store(
        self, bookie_id: BookieId, first: int, payloads: Sequence[bytes], *, lac: int = NO_ENTRY
    ) -> None:
        """Send a batch after entries of equal length, and require that it is stored."""
        length_before = first * (len(payloads[0]) if payloads else 0)
        sent = self.send(bookie_id, first, payloads, lac=lac, length_before=length_before)
        assert await asyncio.wait_for(sent, TIMEOUT_S) is Status.OK

    async def report_lac(self, bookie_id: BookieId, lac: int) -> None:
        """Store an explicit LAC on one bookie."""
        ledger_id = self.keys.ledger_id
        request = WriteLac(ledger_id, EntryId(lac))
        answer = await self.direct.pool._call(bookie_id, request, LacReply, ledger_id, TIMEOUT_S)
        assert answer.status is Status.OK

    async def fence(self, bookie_id: BookieId) -> None:
        """Fence the ledger on one bookie."""
        request = ReadLac(self.keys.ledger_id, fence=True)
        answer = await self.direct.pool.read_lac(bookie_id, request, timeout_s=TIMEOUT_S)
        assert answer.status is Status.OK
        assert answer.fenced

    async def require_held(self, wanted: Mapping[BookieId, Sequence[bytes]]) -> None:
        """Read from every bookie of the ledger; require these entries from 0 on, and no others."""
        last = max([len(sequence) for sequence in wanted.values()], default=0)
        for bookie_id in self.metadata.last_fragment.ensemble:
            held = await read_copies(self.direct, self.keys, bookie_id, [(0, last)])
            found = [bytes(view) for batch in held.valid for view in batch.payload_views()]
            assert found == list(wanted.get(bookie_id, [])), bookie_id
            assert held.damaged == [], bookie_id

    def attached_to(self, direct: Direct) -> "RawLedger":
        """Return the same ledger over other connections."""
        direct.pool.attach(self.keys.ledger_id, self.keys.master_key)
        return replace(self, direct=direct)


async def make_ledger(
    direct: Direct, ensemble: Sequence[str], *, ack: int, write: int = 3
) -> RawLedger:
    """Store the metadata of an open ledger without an entry."""
    rng = Random()
    ledger_id = await LedgerIdAllocator(direct.cluster.store, rng).allocate()
    token = UpdateToken(rng.randbytes(UPDATE_TOKEN_BYTES))
    metadata = LedgerMetadata(
        ledger_id=ledger_id,
        state=LedgerState.OPEN,
        quorum=QuorumSpec(len(ensemble), write, ack),
        fragments=(Fragment(EntryId(0), tuple(BookieId(each) for each in ensemble)),),
        digest=DigestType.CRC32C,
        created_ms=0,
        creation_token=token,
        update_token=token,
        writer=ClientId("test"),
    )
    await direct.cluster.ledgers.create(metadata)
    keys = LedgerKeys.of(metadata, b"")
    direct.pool.attach(ledger_id, keys.master_key)
    return RawLedger(direct, metadata, keys)
