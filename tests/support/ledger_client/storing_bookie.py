"""In-memory bookie for the client's tests, without a server."""

from dataclasses import dataclass, field
from random import Random

from bookie.wire.batch import BatchView
from bookie.wire.codec import encode_acks, encode_entries, encode_message
from bookie.wire.frames import ADD_RECOVERY, Frame, FrameKind, frame_header
from bookie.wire.messages import (
    AttachLedger,
    BeginLogin,
    ContinueLogin,
    DetachLedger,
    EntryRanges,
    FenceWithoutKey,
    Hello,
    LacReply,
    ListEntries,
    Ping,
    Pong,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    Refused,
    Reply,
    ReportLac,
    Request,
    RightsReply,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.registry.registrar import BookieRegistrar
from metadata.registry.registration import BookieRegistration
from metadata.store.interface import MetadataStore
from quire.server.overriding import override
from tests.support.ledger_client.scripted_bookie import ScriptedBookie


@dataclass(slots=True)
class StoredLedger:
    """One ledger on this bookie: one batch per entry id."""

    key: bytes
    entries: dict[int, BatchView] = field(default_factory=dict)
    lac: EntryId = NO_ENTRY
    is_fenced: bool = False


class StoringBookie(ScriptedBookie):
    """Bookie that keeps batches, fences and LACs until its end."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.ledgers: dict[LedgerId, StoredLedger] = {}
        self.keys: dict[tuple[int, LedgerId], bytes] = {}  # keys by connection
        self.answer = self.stored_answer
        self.refuse_adds: Status | None = None
        self.entry_bytes_max = 2**30
        self.rights: int | None = None
        """Rights that it says; None while it cannot know them."""
        self._registrar: BookieRegistrar | None = None

    async def register(
        self, store: MetadataStore, *, writable: bool = True, features: tuple[str, ...] = ()
    ) -> None:
        address = self.address
        registration = BookieRegistration(
            self.id,
            address.host,
            address.port,
            writable=writable,
            free_bytes=1,
            capacity_bytes=1,
            features=features,
        )
        self._registrar = BookieRegistrar(store, registration, Random(1))
        await self._registrar.start()

    async def unregister(self) -> None:
        if self._registrar is not None:
            await self._registrar.aclose()
            self._registrar = None

    def damage(self, ledger_id: LedgerId, entry_id: int) -> None:
        """Flip a bit of a stored entry, if it is stored."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None and entry_id in ledger.entries:
            data = bytearray(ledger.entries[entry_id].data)
            data[-1] ^= 1
            ledger.entries[entry_id] = BatchView(data)

    def stored_answer(self, request: Request) -> Reply | bytes | None:
        match request:
            case AttachLedger(ledger_id, key):
                self.keys[self.speaking, ledger_id] = key
                return None
            case ReportLac(ledger_id, lac):
                told = self.ledgers[ledger_id]
                told.lac = max(told.lac, lac)
                return None
            case DetachLedger() | Hello():
                return None
            case ReadRights() | ReadAccess() | FenceWithoutKey() | BeginLogin() | ContinueLogin():
                return self._rights(request)
            case Ping():
                return Pong(writable=True, append_p99_us=0)
            case ListEntries(ledger_id):
                ledger = self.ledgers.get(ledger_id)
                if ledger is None:
                    return EntryRanges(Status.NO_SUCH_LEDGER, (), complete=True)
                return EntryRanges(Status.OK, _ranges(ledger), complete=True)
            case ReadLac(ledger_id) | WriteLac(ledger_id):
                return self._lac(ledger_id, request)
            case ReadEntries(ledger_id, first, last, _, fence):
                return self._read(ledger_id, first, last, fence=fence)
            case WaitLac(ledger_id, lac):
                return self._read(ledger_id, EntryId(lac + 1), self.lac_of(ledger_id))

    def _rights(self, request: Request) -> Reply:
        if not isinstance(request, ReadRights):
            return Refused(Status.UNAUTHORIZED, "every client is anonymous here")
        if self.rights is None:
            return Refused(Status.UNKNOWN, "the metadata service is away")
        return RightsReply(self.rights)

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        ledger = self.ledgers.get(ledger_id)
        return NO_ENTRY if ledger is None else ledger.lac

    @override
    def answer_add(self, frame: Frame) -> bytes:
        """Store a batch; return the ACKS frame, or the refusal of all adds that a test wants."""
        if self.add_refusal is not None:
            refusal = encode_message(self.add_refusal)
            return frame_header(FrameKind.REPLY, frame.request_id, len(refusal)) + refusal
        body = encode_acks([(frame.request_id, self._store(frame))])
        return frame_header(FrameKind.ACKS, 0, len(body)) + body

    def _key(self, ledger_id: LedgerId) -> bytes:
        return self.keys[self.speaking, ledger_id]

    def _store(self, frame: Frame) -> Status:
        if len(frame.body) > self.entry_bytes_max:
            return Status.BAD_REQUEST
        batch = BatchView(frame.body)
        header = batch.header
        batch.verify_crc()
        key = self._key(header.ledger_id)
        ledger = self.ledgers.setdefault(header.ledger_id, StoredLedger(key))
        if self.refuse_adds is not None:
            return self.refuse_adds
        if ledger.key != key:
            return Status.UNAUTHORIZED
        if ledger.is_fenced and not frame.flags & ADD_RECOVERY:
            return Status.FENCED
        for index in range(header.count):
            entry_id = EntryId(header.first_entry_id + index)
            known = ledger.entries.get(entry_id)
            if known is not None and _payload(known, entry_id) != batch.entry(index):
                return Status.CONFLICT
        for index in range(header.count):
            ledger.entries[header.first_entry_id + index] = batch
        ledger.lac = max(ledger.lac, header.lac)
        return Status.OK

    def _lac(self, ledger_id: LedgerId, request: ReadLac | WriteLac) -> Reply:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None and isinstance(request, ReadLac) and not request.fence:
            return LacReply(Status.NO_SUCH_LEDGER, NO_ENTRY, NO_ENTRY, fenced=False)
        ledger = ledger or self.ledgers.setdefault(ledger_id, StoredLedger(self._key(ledger_id)))
        if ledger.key != self._key(ledger_id):
            return Refused(Status.UNAUTHORIZED, "another key")
        if isinstance(request, ReadLac):
            ledger.is_fenced |= request.fence
        else:
            ledger.lac = max(ledger.lac, request.lac)
        highest = EntryId(max(ledger.entries, default=NO_ENTRY))
        return LacReply(Status.OK, ledger.lac, highest, fenced=ledger.is_fenced)

    def _read(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId, *, fence: bool = False
    ) -> Reply | bytes:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None and fence:
            ledger = self.ledgers[ledger_id] = StoredLedger(self._key(ledger_id))
        if ledger is None:
            nothing = encode_entries(Status.NO_SUCH_LEDGER, NO_ENTRY, first, [])
            return b"".join(nothing)
        if ledger.key != self._key(ledger_id):
            return Refused(Status.UNAUTHORIZED, "another key")
        ledger.is_fenced |= fence
        batches: list[memoryview | bytearray] = []
        entry_id = first
        while entry_id <= last and entry_id in ledger.entries:
            batch = ledger.entries[entry_id]
            until = min(last, batch.header.last_entry_id)
            batches.append(batch.cut(entry_id, until))
            entry_id = EntryId(until + 1)
        status = Status.OK if entry_id > last else Status.NO_SUCH_ENTRY
        return b"".join(encode_entries(status, ledger.lac, entry_id, batches))


def _payload(batch: BatchView, entry_id: EntryId) -> bytes:
    return batch.entry(entry_id - batch.header.first_entry_id)


def _ranges(ledger: StoredLedger) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for entry_id in sorted(ledger.entries):
        if ranges and ranges[-1][1] == entry_id - 1:
            ranges[-1] = (ranges[-1][0], entry_id)
        else:
            ranges.append((entry_id, entry_id))
    return tuple(ranges)
