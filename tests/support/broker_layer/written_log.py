"""A partition's ledgers as lists of entries, written as its leader writes them."""

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    NO_PRODUCER,
    ControlKind,
    Producer,
    Record,
    RecordBatchHeader,
    build_batch,
    build_control_batch,
    place,
    read_control,
    read_header,
)
from broker_layer.log.state.partition_state import PartitionState
from broker_layer.log.state.producer_state import Accept, BatchRefused
from metadata.ids import EntryId, LedgerId

NOW = 1_700_000_000_000
LEDGER = LedgerId(7)


class WrittenLog:
    """Log that admits batches as entries of its newest ledger."""

    def __init__(self) -> None:
        self.state = PartitionState()
        self.ledgers: dict[LedgerId, list[bytes]] = {}
        self.start_epoch(0)
        self.roll(LEDGER)

    @property
    def entries(self) -> list[bytes]:
        """The entries of the newest ledger."""
        return self.ledgers[self.ledger_id]

    def roll(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.ledgers[ledger_id] = []
        self.state.begin_ledger(ledger_id)
        self.write_state()

    def start_epoch(self, epoch: int) -> None:
        """Begin a leadership at the end of the log, as a takeover does."""
        self.state.epochs = self.state.epochs.with_start(epoch, self.state.next_offset)

    def write_state(self) -> None:
        self.entries.append(self.state.to_state_entry(EntryId(len(self.entries))))

    def append(self, data: bytearray, coordinator_epoch: int | None = None) -> int:
        """Admit a batch, which must be acceptable; return its offset."""
        header = read_header(data)
        verdict = self.state.check(header, coordinator_epoch, may_open=True)
        assert verdict == Accept(), verdict
        base_offset = self.state.next_offset
        place(data, base_offset, max(0, self.state.epochs.latest_epoch))
        control = read_control(data) if header.is_control else None
        self.state.admit(EntryId(len(self.entries)), base_offset, header, control, NOW)
        self.entries.append(bytes(data))
        return base_offset

    def write(
        self, producer: Producer = NO_PRODUCER, *, count: int = 1, size: int = 10, at_ms: int = NOW
    ) -> int:
        return self.append(batch(producer, count=count, size=size, at_ms=at_ms))

    def write_in_transaction(self, producer: Producer, *, count: int = 1) -> int:
        return self.append(batch(producer, count=count, is_transactional=True))

    def end(
        self, kind: ControlKind, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 3
    ) -> int:
        """End a producer's transaction; return the marker's offset."""
        marker = build_control_batch(kind, producer_id, epoch, coordinator_epoch, NOW)
        return self.append(marker, coordinator_epoch)

    def refusal(
        self, data: bytearray, coordinator_epoch: int | None = None, *, may_open: bool = True
    ) -> ErrorCode:
        """Return the code with which a batch is refused; it must be refused."""
        verdict = self.state.check(read_header(data), coordinator_epoch, may_open=may_open)
        assert isinstance(verdict, BatchRefused), verdict
        assert verdict.text
        return verdict.code

    def replayed(self, ledger_id: LedgerId, state_entry_id: int) -> PartitionState:
        """Return the state of a new leader from a state entry and all entries after it."""
        entries = self.ledgers[ledger_id]
        data = entries[state_entry_id]
        state = PartitionState.from_state_entry(data, ledger_id, EntryId(state_entry_id))
        later = [ledger for ledger in self.ledgers if ledger > ledger_id]
        replay(state, entries[state_entry_id + 1 :], state_entry_id + 1)
        for each in later:
            state.begin_ledger(each)
            replay(state, self.ledgers[each], 0)
        return state


def replay(
    state: PartitionState, entries: list[bytes], first_entry_id: int
) -> list[RecordBatchHeader]:
    """Replay consecutive entries; return the headers of the batches among them."""
    headers = [
        state.replay(EntryId(entry_id), data, NOW)
        for entry_id, data in enumerate(entries, first_entry_id)
    ]
    return [header for header in headers if header is not None]


def batch(
    producer: Producer = NO_PRODUCER,
    *,
    count: int = 1,
    size: int = 10,
    at_ms: int = NOW,
    is_transactional: bool = False,
    uses_append_time: bool = False,
) -> bytearray:
    """Build a batch of records with the same time."""
    return build_batch(
        [Record(i, at_ms, None, b"x" * size) for i in range(count)],
        producer=producer,
        is_transactional=is_transactional,
        uses_append_time=uses_append_time,
    )
