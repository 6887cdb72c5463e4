"""Promises to users of topics, and the check of each record and offset that is shown to them.

Leaves the final read to `ending`.

Invariants checked, each named as it is reported: an offset holds one record for ever, for every
reader (inconsistent). An acknowledged record is at its acknowledged offset (lost). No reader sees
records that are not committed (beyond), and readers of committed records see no undecided
(precommitted) or aborted (aborted read) ones. The end and the start of a log never go back, for a
request that was sent after an answer with a later value (went back), and records before the start
are not read (deleted read). A producer's batch is in the log once (duplicate). An acknowledged
offset of a group is not lost (offset lost) nor replaced by an older one (offset back). An offset of
a transaction is returned only if the transaction may be committed (aborted offset).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from broker_layer.kafka.record_batch import (
    ControlKind,
    RecordBatchHeader,
    parse_records,
    read_control,
)
from broker_layer.kafka.record_batch.header import checksum
from tests.simulation.model import Model
from tests.simulation.topics.frames import Fetched

RECORDS_BYTES_MAX: Final = 2**20
Place = tuple[str, int]


class Outcome(StrEnum):
    """Known outcome of a transaction."""

    OPEN = "open"
    """No client has requested to commit it."""
    ASKED = "asked"
    """A client has requested it, and has no answer."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class TransactionHistory:
    """One transaction of one producer."""

    name: str
    outcome: Outcome = Outcome.OPEN
    records: list["SentRecord"] = field(default_factory=list)
    seen: str = ""
    """First place where a reader saw it committed."""


@dataclass(slots=True)
class SentRecord:
    """One record that was sent, once or more often."""

    value: bytes
    place: Place
    producer: str
    number: int
    is_unique: bool
    transaction: TransactionHistory | None = None
    is_acknowledged: bool = False
    offset: int | None = None
    """Offset as acknowledged, or as read."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Process that leads, or did.

    `may_be_replaced` returns whether its session has lapsed, so that others may lead its
    partitions.
    """

    broker: int
    incarnation: int
    may_be_replaced: bool = False


@dataclass(slots=True)
class Ends:
    """Reported start and end of a log."""

    end: int = 0
    start: int = 0

    def learn(self, end: int, start: int) -> None:
        """Record the last reported values."""
        self.end, self.start = max(self.end, end), max(self.start, start)


@dataclass(frozen=True, slots=True)
class Known:
    """Known ends of a log when a request was sent: from any leader, and from the same one."""

    end: int
    leader_end: int
    leader_start: int
    epoch_end: int = 0
    epoch_start: int = 0
    """The same from leaders up to the epoch of the request."""


@dataclass(slots=True)
class LogHistory:
    """History of one partition."""

    end: int = 0
    start: int = 0
    through: dict[tuple[int, int], Ends] = field(default_factory=dict)
    """Values reported by each leading process."""
    by_epoch: dict[int, Ends] = field(default_factory=dict)
    """Values reported by leaders to requests with their epoch."""
    known: dict[int, bytes] = field(default_factory=dict)
    """Offset -> leader epoch and value, or contents of the marker."""
    places: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[int, SentRecord] = field(default_factory=dict)
    stored: list["StoredRecord"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record that was acknowledged when it was stored once (acks=1).

    It may be lost, but only with its leader, whose epoch is this or a later one.
    """

    record: "SentRecord"
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Reader:
    """Request for one partition from an offset on, and the client that sends it."""

    name: str
    place: Place
    position: int
    is_committed: bool
    epoch: int = -1
    """Epoch of the leader, if the request contains it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a reader saw."""

    offset: int
    leader_epoch: int
    record: SentRecord


class History:
    """Histories of all partitions and transactions of a run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.logs: dict[Place, LogHistory] = {}
        self.records: dict[bytes, SentRecord] = {}
        self.transactions: list[TransactionHistory] = []
        self.acknowledged_count = 0

    def log(self, place: Place) -> LogHistory:
        """Return the history of a partition."""
        found = self.logs.get(place)
        if found is None:
            found = self.logs[place] = LogHistory()
        return found

    def known(self, place: Place, leader: Leader, epoch: int = -1) -> Known:
        """Return the current facts, for comparison with the answer to a request that is sent now.

        The request goes to the leader of `epoch` if one is given.
        """
        said, log = self._said(place, leader), self.log(place)
        earlier = [ends for number, ends in log.by_epoch.items() if number <= epoch]
        return Known(
            log.end,
            said.end,
            said.start,
            max((ends.end for ends in earlier), default=0),
            max((ends.start for ends in earlier), default=0),
        )

    def _said(self, place: Place, leader: Leader) -> Ends:
        return self.log(place).through.setdefault((leader.broker, leader.incarnation), Ends())

    def report(self, kind: str, place: Place, text: str) -> None:
        """Report a violation."""
        self._model.report(kind, f"{place[0]}-{place[1]}: {text}")

    # -- writing ---------------------------------------------------------------------------------

    def begin_transaction(self, name: str) -> TransactionHistory:
        """Record that a producer begins a transaction."""
        transaction = TransactionHistory(name)
        self.transactions.append(transaction)
        return transaction

    def send(self, record: SentRecord) -> None:
        """Record that a record is about to be sent."""
        assert record.value not in self.records
        self.records[record.value] = record
        if record.transaction is not None:
            record.transaction.records.append(record)

    def note_acknowledged(
        self, leader: Leader, records: list[SentRecord], base_offset: int
    ) -> None:
        """Record an acknowledgement; -1: of a duplicate without an offset."""
        place = records[0].place
        log = self.log(place)
        self._model.note("acknowledged", f"{place} {base_offset} {records[0].value!r}")
        for offset, record in enumerate(records, base_offset):
            record.is_acknowledged = True
            self.acknowledged_count += 1
            if base_offset < 0:
                continue
            record.offset = offset
            other = log.acknowledged.setdefault(offset, record)
            known = log.known.get(offset)
            if other is not record:
                text = f"{record.value!r} was acknowledged at {offset}, as was {other.value!r}"
                self.report("inconsistent", place, text)
            elif known is not None and known[4:] != record.value:
                text = f"{record.value!r} was acknowledged at {offset}, where {known!r} is"
                self.report("inconsistent", place, text)
        if base_offset >= 0:
            end = base_offset + len(records)
            log.end = max(log.end, end)
            self._said(place, leader).learn(end, 0)

    def note_stored(self, record: SentRecord, offset: int, epoch: int) -> None:
        """Record an acknowledgement that does not promise a commit."""
        self._model.note("stored", f"{record.place} {offset} {record.value!r}")
        self.log(record.place).stored.append(StoredRecord(record, offset, epoch))

    # -- reading ---------------------------------------------------------------------------------

    def note_range(
        self,
        who: str,
        place: Place,
        leader: Leader,
        before: Known,
        end: int | None,
        start: int | None,
        epoch: int = -1,
    ) -> None:
        """Record a log's end and start from an answer to a request sent at `before`.

        `epoch` is the leader's, if the request contained it.
        """
        log, said = self.log(place), self._said(place, leader)
        least = before.end if leader.may_be_replaced else before.leader_end
        least = max(least, before.epoch_end)
        if end is not None and end < least:
            text = f"{who} was told by broker {leader.broker} to read to {end}, not {least}"
            self.report("went back", place, text)
        first = max(before.leader_start, before.epoch_start)
        if start is not None and start < first:
            text = f"{who} was told by broker {leader.broker} to begin at {start}, not at {first}"
            self.report("went back", place, text)
        log.end, log.start = max(log.end, end or 0), max(log.start, start or 0)
        said.learn(end or 0, start or 0)
        if epoch >= 0:
            log.by_epoch.setdefault(epoch, Ends()).learn(end or 0, start or 0)

    def note_fetched(
        self, reader: Reader, leader: Leader, before: Known, fetched: Fetched
    ) -> list[Seen]:
        """Check the records that a reader received, and return those that it passes on."""
        who, place, offset = reader.name, reader.place, reader.position
        end, start = fetched.high_watermark, fetched.log_start_offset
        self.note_range(who, place, leader, before, end, start, reader.epoch)
        first = max(before.leader_start, before.epoch_start)
        for header, _ in fetched.batches:
            if header.last_offset < first:
                text = f"{who} got {header.last_offset}, and the log was to begin at {first}"
                self.report("deleted read", place, text)
        self._judge_range(reader, fetched)
        aborting = deque(sorted(fetched.aborted, key=lambda each: each[1]))
        out: dict[int, None] = {}
        shown: list[Seen] = []
        for header, data in fetched.batches:
            while aborting and aborting[0][1] <= header.last_offset:
                out[aborting.popleft()[0]] = None
            if header.is_control:
                self._note_marker(who, place, header, data)
                out.pop(header.producer_id, None)
                continue
            found = list(self._note_batch(who, place, header, data))
            if not (reader.is_committed and header.is_transactional and header.producer_id in out):
                shown += [each for each in found if each.offset >= offset]
        if reader.is_committed:
            for seen in shown:
                self._judge_committed(who, place, seen)
        return shown

    def _judge_range(self, reader: Reader, fetched: Fetched) -> None:
        """Check that batches follow one another, up to the last offset this reader may read."""
        who, place, expected = reader.name, reader.place, reader.position
        limit = fetched.last_stable_offset if reader.is_committed else fetched.high_watermark
        if fetched.last_stable_offset > fetched.high_watermark:
            self.report("beyond", place, f"{who}: {fetched.last_stable_offset} is called stable")
        for header, _ in fetched.batches:
            if not header.base_offset <= expected <= header.last_offset:
                text = f"{who} is to get {expected}, and got {header.base_offset}"
                self.report("reordered", place, f"{text} to {header.last_offset}")
            if header.last_offset >= limit:
                text = f"{who} got {header.last_offset}, and the end is {limit}"
                self.report("beyond", place, text)
            expected = header.last_offset + 1

    def _note_batch(
        self, who: str, place: Place, header: RecordBatchHeader, data: bytes
    ) -> Iterable[Seen]:
        if len(data) != header.size_bytes or checksum(data) != header.crc:
            self.report("damaged", place, f"{who} got a damaged batch at {header.base_offset}")
            return
        for parse_record in parse_records(data, bytes_max=RECORDS_BYTES_MAX):
            value = parse_record.value or b""
            record = self.records.get(value)
            if record is None or record.place != place:
                self.report(
                    "inconsistent", place, f"{who} got {value!r}, which no client sent here"
                )
                continue
            self._note_offset(who, place, parse_record.offset, header.leader_epoch, value)
            record.offset = parse_record.offset
            elsewhere = self.log(place).places.setdefault(value, parse_record.offset)
            if elsewhere != parse_record.offset and record.is_unique:
                text = f"{value!r} is at {elsewhere} and at {parse_record.offset}"
                self.report("duplicate", place, text)
            yield Seen(parse_record.offset, header.leader_epoch, record)

    def _note_marker(self, who: str, place: Place, header: RecordBatchHeader, data: bytes) -> None:
        kind, _ = read_control(data)
        text = f"{ControlKind(kind).name} of {header.producer_id} epoch {header.producer_epoch}"
        self._note_offset(who, place, header.base_offset, header.leader_epoch, text.encode())

    def _note_offset(self, who: str, place: Place, offset: int, epoch: int, value: bytes) -> None:
        log = self.log(place)
        held = epoch.to_bytes(4, "big") + value
        known = log.known.setdefault(offset, held)
        if known != held:
            text = f"{who} got {held!r} at {offset}, where {known!r} was"
            self.report("inconsistent", place, text)
        promised = log.acknowledged.get(offset)
        if promised is not None and promised.value != value:
            text = f"{who} got {value!r} at {offset}, where {promised.value!r} was acknowledged"
            self.report("inconsistent", place, text)

    def _judge_committed(self, who: str, place: Place, seen: Seen) -> None:
        transaction = seen.record.transaction
        if transaction is None:
            return
        what = f"{who} got {seen.record.value!r} at {seen.offset} of {transaction.name}"
        if transaction.outcome is Outcome.OPEN:
            self.report("precommitted", place, f"{what}, which is not committed")
        elif transaction.outcome is Outcome.ABORTED:
            self.report("aborted read", place, f"{what}, which was aborted")
        else:
            transaction.seen = transaction.seen or what


GroupPlace = tuple[str, int]
"""A group, and the partition that it commits for."""


@dataclass(slots=True)
class GroupHistory:
    """Commits of one group for one partition."""

    last: int = 0
    """Last number that was assigned."""
    acknowledged: int | None = None
    asked: dict[int, TransactionHistory | None] = field(default_factory=dict)
    """Offsets that may be committed, with their transaction if they have one."""


class OffsetHistory:
    """The offsets of all groups of a run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.groups: dict[GroupPlace, GroupHistory] = {}

    def group(self, place: GroupPlace) -> GroupHistory:
        """Return the history of a group's partition."""
        found = self.groups.get(place)
        if found is None:
            found = self.groups[place] = GroupHistory()
        return found

    def ask(self, place: GroupPlace, transaction: TransactionHistory | None = None) -> int:
        """Return an offset that is about to be committed."""
        group = self.group(place)
        group.last += 1
        group.asked[group.last] = transaction
        return group.last

    def note_acknowledged(self, place: GroupPlace, offset: int) -> None:
        """Record that an offset is committed, and so is its transaction."""
        group = self.group(place)
        self._model.note("offset", f"{place} {offset}")
        group.acknowledged = max(offset, group.acknowledged or 0)
        if group.asked.get(offset) is None:
            group.asked.pop(offset, None)

    def note_refused(self, place: GroupPlace, offset: int) -> None:
        """Record that an offset is not, and will not be, committed."""
        self.group(place).asked.pop(offset, None)

    def note_taken_over(self, place: GroupPlace, asked: list[int], offset: int) -> None:
        """Record that a new owner received `offset`.

        `asked` are the offsets that others had requested to commit when it became the owner: none
        of them takes effect any more.
        """
        group = self.group(place)
        if offset >= 0:
            group.acknowledged = max(offset, group.acknowledged or 0)
        for each in asked:
            group.asked.pop(each, None)

    def note_told(self, who: str, place: GroupPlace, before: int | None, offset: int) -> None:
        """Check the offset that a group received, for a request sent when `before` was
        acknowledged.
        """
        group = self.group(place)
        if offset < 0:
            if before is not None:
                self._report("offset lost", place, f"{who} was told none, not {before}")
            return
        transaction = group.asked.get(offset)
        if transaction is not None and transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            text = f"{who} was told {offset} of {transaction.name}, {transaction.outcome}"
            self._report("aborted offset", place, text)
        elif transaction is not None:
            transaction.seen = transaction.seen or f"{who} was told {offset} of it"
        is_late = offset in group.asked and transaction is None
        if before is not None and offset < before and not is_late:
            self._report("offset back", place, f"{who} was told {offset}, not {before}")
        if offset not in group.asked and offset > (group.acknowledged or 0):
            self._report(
                "offset back", place, f"{who} received {offset}, which no client committed"
            )

    def _report(self, kind: str, place: GroupPlace, text: str) -> None:
        self._model.report(kind, f"{place[0]}, partition {place[1]}: {text}")
