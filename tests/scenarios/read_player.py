"""Player of transcripts of reads: the result of one range, and the view of a handle.

`ReadPlayer` drives `RangeRead` and `ReplicaOrder`; answers are real batches, checked by
`verify_entries`, as in the product. These do not use the LAC, which belongs to the handle, so
`HandlePlayer` drives a `LedgerReader`, in virtual time, over bookies in memory.

Set-up of both: `quorum E/WQ/AQ[/S]`, `fragments 0:a,b,c`. Of `read`: `rotation N`, the start of the
order of replicas while there are no results (0 unless given).

Events of `read` (rule 8.2):
    read 5..9                                 a new read; all that follows belongs to it
    answered a 5..6 7..9! [STATUS]            batches (! damaged), then its status of the next one
    failed a REASON | delay
    good a | bad a                            results of earlier reads, for the order of later ones

Events of `handle` (rules 8.1, 8.5, 8.7):
    stored 2 STATE [fragments=...] [last=N length=N] [lost=3..5,9..9]
                                              the metadata from now on, at this version
    write 0..9 to=a,b,c                       one batch
    lac a 7 | away a | back a | limbo a
    open | refresh | agreed                   shows the LAC, and whether it is the end
    read [5..9] | read-unconfirmed 5..9
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, cast

from bookie.wire.batch import BatchView, build_batch
from bookie.wire.codec import Entries
from bookie.wire.messages import Status
from ledger_client.batches import EntryBatch
from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import EntryLostError, LedgerError
from ledger_client.protocol import read as p
from ledger_client.reading.reader import LedgerReader
from ledger_client.reading.verified_entries import VerifiedEntries, verify_entries
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId, Version
from metadata.ledgers.copies import write_set
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.store.interface import Cancel, WatchCallback
from tests.scenarios import words as w
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.memory_bookies import MemoryBookies

if TYPE_CHECKING:
    from metadata.ledgers.ledger_store import LedgerStore

PASSWORD: Final = b"secret"
BOOKIES: Final = "abcdef"
UNTIL_S: Final = 600.0
LOST_MS: Final = 1_700_000_000_000


class ReadPlayer:
    """The reads of one ledger, one after the other, and their results for the order of replicas."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        quorum, fragments = w.parse_quorum(setup["quorum"]), w.parse_fragments(setup["fragments"])
        self._metadata = w.ledger(quorum, fragments, LedgerState.OPEN)
        self._keys = LedgerKeys.of(self._metadata, PASSWORD)
        self._order = p.ReplicaOrder(int(setup.get("rotation", "0")))
        self._read = p.RangeRead((BookieId("none"),))
        self._first, self._last = EntryId(0), EntryId(0)
        self._verified: dict[BookieId, VerifiedEntries] = {}

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["read", entries]:
                actions = self._begin(entries)
            case ["good", bookie_id]:
                self._order.note_good(BookieId(bookie_id))
                actions = []
            case ["bad", bookie_id]:
                self._order.note_bad(BookieId(bookie_id))
                actions = []
            case _:
                actions = self._read.handle(self._event(words))
        return [self._show(action) for action in actions]

    def _begin(self, entries: str) -> list[p.ReadAction]:
        self._first, self._last = _parse_range(entries)
        metadata = self._metadata
        fragment = metadata.fragment_of(self._first)
        replicas = write_set(metadata.quorum, fragment, self._first)
        self._read = p.RangeRead(self._order.order(replicas))
        self._verified.clear()
        return self._read.start()

    def _event(self, words: Sequence[str]) -> p.ReadEvent:
        match words:
            case ["answered", bookie_id, *found]:
                return self._answered(BookieId(bookie_id), found)
            case ["failed", bookie_id, reason]:
                return p.ReplicaFailed(BookieId(bookie_id), reason)
            case ["delay"]:
                return p.DelayPassed()
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _answered(self, bookie_id: BookieId, found: Sequence[str]) -> p.ReplicaAnswered:
        batches: list[BatchView] = []
        status, following = Status.OK, self._first
        for word in found:
            if ".." not in word:
                status = w.parse_status(word)
                continue
            first, last = _parse_range(word.rstrip("!"))
            batches.append(self._batch(first, last, is_damaged=word.endswith("!")))
            following = EntryId(last + 1)
        answer = Entries(status, NO_ENTRY, following, tuple(batches))
        verified = verify_entries(answer, self._keys, self._first, self._last)
        self._verified[bookie_id] = verified
        found_count = verified.next_entry_id - self._first
        reason = "damaged" if verified.is_damaged else verified.reason
        return p.ReplicaAnswered(
            bookie_id, found_count, verified.status, reason, verified.is_damaged
        )

    def _batch(self, first: EntryId, last: EntryId, *, is_damaged: bool) -> BatchView:
        seed, payloads = self._keys.seed, _payloads(first, last)
        data = build_batch(w.LEDGER, first, EntryId(first - 1), 0, payloads, seed)
        if is_damaged:
            data[-1] ^= 1
        return BatchView(data)

    def _show(self, action: p.ReadAction) -> str:
        match action:
            case p.AskReplica(bookie_id):
                return f"ask {bookie_id} {self._first}..{self._last}"
            case p.StartDelay():
                return "start delay"
            case p.Deliver(bookie_id):
                last = self._verified[bookie_id].next_entry_id - 1
                return f"deliver {self._first}..{last} of {bookie_id}"
            case p.ReportMissing():
                return "no such entry"
            case p.ReportUnreadable(reasons, is_damaged):
                damaged = " all-damaged" if is_damaged else ""
                return f"unreadable {w.show_reasons(reasons)}{damaged}"
            case p.ReportUnauthorized(bookie_id):
                return f"unauthorized by {bookie_id}"


class HandlePlayer:
    """One open handle of a reader, the ledger's stored metadata, and its bookies."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        quorum, fragments = w.parse_quorum(setup["quorum"]), w.parse_fragments(setup["fragments"])
        metadata = w.ledger(quorum, fragments, LedgerState.OPEN)
        keys = LedgerKeys.of(metadata, PASSWORD)
        self._stored = _StoredLedger(metadata, Version(1))
        self._bookies = MemoryBookies(BOOKIES, keys)
        self._reader = LedgerReader(
            metadata=metadata,
            version=Version(1),
            keys=keys,
            pool=self._bookies.pool,
            ledgers=cast("LedgerStore", self._stored),
            config=ClientConfig(),
            rng=Random(1),
        )

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["stored", version, state, *rest]:
                self._stored.metadata = self._changed(LedgerState(state), w.parse_options(rest))
                self._stored.version = Version(int(version))
                return []
            case ["write", entries, to]:
                first, last = _parse_range(entries)
                names, lac = to.removeprefix("to="), first - 1
                payloads = _payloads(first, last)
                self._bookies.write(first, payloads, lac=lac, length_before=0, to=names)
                return []
            case ["lac", bookie_id, lac]:
                self._bookies[bookie_id].lac = int(lac)
                return []
            case ["away" | "back" as word, bookie_id]:
                self._bookies[bookie_id].failure = CallFailure.LOST if word == "away" else None
                return []
            case ["limbo", bookie_id]:
                self._bookies[bookie_id].is_limbo = True
                return []
            case _:
                return [self._call(words)]

    def _call(self, words: Sequence[str]) -> str:
        """Call the handle on a separate loop: no task of a call outlives it."""
        for bookie in self._bookies.bookies.values():
            bookie.changed = asyncio.Event()  # an event belongs to the loop that it was used in
        self._reader._own_loop._loop = None

        async def call() -> str:
            try:
                return await self._called(words)
            except EntryLostError as error:
                return f"EntryLostError {error.lost_first}..{error.lost_last}"
            except LedgerError as error:
                return f"{type(error).__name__} lac={self._reader.last_confirmed}"

        return run_simulation(call, 1, until_s=UNTIL_S)

    async def _called(self, words: Sequence[str]) -> str:
        reader = self._reader
        match words:
            case ["open"]:
                await reader.start(ClientConfig().read_timeout_s)
                return self._show_lac()
            case ["refresh"]:
                await reader.refresh_last_confirmed()
                return self._show_lac()
            case ["agreed"]:
                await reader.agreed_last()
                return self._show_lac()
            case ["read"]:
                return await _shown(reader.read())
            case ["read", entries]:
                return await _shown(reader.read(*_parse_range(entries)))
            case ["read-unconfirmed", entries]:
                return await _shown(reader.read_unconfirmed(*_parse_range(entries)))
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _changed(self, state: LedgerState, options: Mapping[str, str]) -> LedgerMetadata:
        quorum, fragments = self._stored.metadata.quorum, self._stored.metadata.fragments
        if "fragments" in options:
            fragments = w.parse_fragments(options["fragments"])
        last, length = int(options.get("last", "-1")), int(options.get("length", "0"))
        changed = w.ledger(quorum, fragments, state, last, length)
        if "lost" not in options:
            return changed
        lost = [_parse_range(part) for part in options["lost"].split(",")]
        return changed.with_lost(lost, LOST_MS, w.TOKEN)

    def _show_lac(self) -> str:
        closed = " closed" if self._reader.is_closed else ""
        return f"lac={self._reader.last_confirmed}{closed}"


class _StoredLedger:
    """Part of a `LedgerStore` that a reader uses; it reports no changes, so only reads see them."""

    def __init__(self, metadata: LedgerMetadata, version: Version) -> None:
        self.metadata = metadata
        self.version = version

    async def get(
        self, _ledger_id: LedgerId, *, fresh: bool = False, agreed: bool = False
    ) -> tuple[LedgerMetadata, Version]:
        assert fresh or agreed, "a handle that was not told of a change reads afresh"
        return self.metadata, self.version

    def watch(self, _ledger_id: LedgerId, _callback: WatchCallback) -> Cancel:
        return lambda: None


async def _shown(batches: AsyncGenerator[EntryBatch, None]) -> str:
    entries = [entry async for batch in batches for entry in batch]
    if not entries:
        return "shown nothing"
    first, last = entries[0].id, entries[-1].id
    assert [entry.data for entry in entries] == _payloads(first, last), "each entry, once, in order"
    return f"shown {first}..{last}"


def _parse_range(text: str) -> tuple[EntryId, EntryId]:
    first, _dots, last = text.partition("..")
    return EntryId(int(first)), EntryId(int(last))


def _payloads(first: int, last: int) -> list[bytes]:
    return [b"entry %d" % entry_id for entry_id in range(first, last + 1)]
