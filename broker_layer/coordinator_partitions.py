"""Internal topics, in which coordinators keep their state: the partition of a key, the partitions
that a broker leads, and how records of state are stored.

Leaves that partition's leader to `cluster_view.py`.

Invariants: the number of partitions of an internal topic is fixed when the topic is created, and
the same key and count give the same partition in every process and release. So the partition of a
key never changes.

Source: the definition of Java's `String.hashCode`, over UTF-16 code units; Kafka's placement of
groups on `__consumer_offsets`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

from broker_layer.errors import TopicError
from broker_layer.handlers import grouped
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import DurableLog, OpenDurableLog
from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import FieldError, Packed
from metadata.records import INT64_MAX, Codec, Form, array, codec_of, whole

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)


RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a record of state. A ledger's entry may be twice as large."""

INT: Final = whole(-INT64_MAX - 1)
Int = Annotated[int, INT]
"""An int that clients or clocks give: any is stored."""

Value = TypeVar("Value")
First = TypeVar("First")
Second = TypeVar("Second")

_MASK: Final = 0xFFFF_FFFF
_LOWEST: Final = -0x8000_0000


def java_string_hash(text: str) -> int:
    """Return the signed 32-bit hash of the text, as Java's `String.hashCode` computes it."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _MASK
    return code - (1 << 32) if code >= 1 << 31 else code


def partition_of_key(key: str, partition_count: int) -> int:
    """Return the partition, 0 to `partition_count` - 1, that keeps the state of the key."""
    assert partition_count > 0, "an internal topic has partitions"
    code = java_string_hash(key)
    return (0 if code == _LOWEST else abs(code)) % partition_count


# -- led partitions ------------------------------------------------------------------------------


class LedPartition:
    """One partition of an internal topic that this broker leads: its log, and what it holds.

    Nothing is decided or answered before it is loaded, after its log failed or another broker got
    it, or while the session of this broker may have lapsed.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.number = number
        self._named = f"{topic}-{number}"
        self._log: DurableLog | None = None
        self._has_ended = False

    async def open(
        self,
        open_log: OpenDurableLog,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
    ) -> None:
        """Load the partition. Raises what `open_log` raises, and TopicError if a record cannot be
        read, or if the partition was resigned meanwhile.
        """
        try:
            log = await open_log(load=load, snapshot=snapshot, on_failed=self.end)
        except MetadataFormatError as error:
            text = (
                f"{self._named} cannot be loaded: {error}. If all brokers have this release, keep "
                "its ledgers and report this"
            )
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
        if self._has_ended:
            await log.aclose()
            raise self._moved("was given to another broker while it was loaded")
        self._log = log

    def end(self) -> None:
        """Stop serving: the log has failed, or another broker gets the partition."""
        self._has_ended = True

    async def aclose(self) -> None:
        """Stop serving, and close the log in order."""
        self.end()
        log, self._log = self._log, None
        if log is not None:
            await log.aclose()

    @property
    def is_loading(self) -> bool:
        """Whether the records are still being read."""
        return self._log is None and not self._has_ended

    @property
    def refusal(self) -> TopicError | None:
        """Why nothing may be decided or answered now; None if it may."""
        if self._has_ended:
            return self._moved("is no longer led by this broker")
        if self._log is None:
            text = f"{self._named} is loading: retry"
            return TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        return self._log.lead_refusal

    @property
    def log(self) -> DurableLog:
        """The log of a partition that may be served. Raises TopicError."""
        if (refusal := self.refusal) is not None:
            raise refusal
        assert self._log is not None, "a serving partition has its log"
        return self._log

    async def confirm_lead(self) -> None:
        """Wait until it is certain that the state in memory was not old at this call. Raises
        TopicError (see `DurableLog.confirm_lead`).
        """
        await self.log.confirm_lead()
        self.log  # noqa: B018 - it checks itself

    def _moved(self, how: str) -> TopicError:
        text = f"{self._named} {how}: find the coordinator again, and retry there"
        return TopicError(ErrorCode.NOT_COORDINATOR, text)


LedT = TypeVar("LedT", bound=LedPartition)


class LedPartitions(Generic[LedT]):
    """The partitions of one internal topic that this broker leads, by their numbers."""

    def __init__(self, topic: str, partition_count: Callable[[], int]) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._led: dict[int, LedT] = {}

    async def load(self, led: LedT, opening: Awaitable[None]) -> None:
        """Add a partition while it is opened, and keep it unless that fails."""
        assert led.number not in self._led, "a partition is resigned before it is led again"
        self._led[led.number] = led
        try:
            await opening
        except BaseException:
            if self._led.get(led.number) is led:
                del self._led[led.number]
            raise

    async def resign(self, number: int) -> None:
        """Close a partition; do nothing for one that is not led."""
        led = self._led.pop(number, None)
        if led is not None:
            await led.aclose()

    async def aclose(self) -> None:
        """Resign all partitions."""
        for number in list(self._led):
            await self.resign(number)

    def find(self, number: int) -> LedT | None:
        """Return a partition that is led or being loaded."""
        return self._led.get(number)

    def of_key(self, key: str) -> LedT:
        """Return the partition that keeps the state of a key. Raises TopicError: NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, or COORDINATOR_NOT_AVAILABLE while there are no partitions.
        """
        count = self._partition_count()
        if count == 0:
            text = f"{self._topic} does not exist yet: find the coordinator, which creates it"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return self.at(partition_of_key(key, count))

    def at(self, number: int) -> LedT:
        """Return a partition that may be served. Raises TopicError as `of_key`."""
        led = self._led.get(number)
        if led is None:
            text = (
                f"this broker does not lead {self._topic}-{number}: find the coordinator again,"
                " and retry there"
            )
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        if led.refusal is not None:
            raise led.refusal
        return led

    def loaded(self) -> list[LedT]:
        """Return the partitions that are loaded."""
        return [led for led in self._led.values() if not led.is_loading]

    def served(self) -> list[LedT]:
        """Return the partitions that may be served. Raises TopicError COORDINATOR_LOAD_IN_PROGRESS
        while one loads, because a list without it would be wrong.
        """
        if any(led.is_loading for led in self._led.values()):
            text = f"partitions of {self._topic} are loading: retry"
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        return [led for led in self._led.values() if led.refusal is None]


# -- stored state --------------------------------------------------------------------------------


def many(form: Form[Value]) -> Form[tuple[Value, ...]]:
    """Return the form of an array that only the size of its record limits."""
    return array(form, RECORD_BYTES_MAX)


def pair(first: Form[First], second: Form[Second]) -> Form[tuple[First, Second]]:
    """Return the form of a pair, which is an array of two."""

    def pack(value: tuple[First, Second]) -> Packed:
        return [first.pack(value[0]), second.pack(value[1])]

    def unpack(field: Packed) -> tuple[First, Second]:
        match field:
            case [one, two]:
                return first.unpack(one), second.unpack(two)
            case _:
                raise FieldError("an array of two fields is expected")

    return Form(f"[{first.shown}, {second.shown}]", pack, unpack)


def by_topic(
    topic: Form[First], number: Form[int], make: Callable[[First, int], Value]
) -> Form[tuple[Value, ...]]:
    """Return the form of partitions in order, which is [[topic, [number, ...]], ...]."""
    topics: Form[Any] = many(pair(topic, many(number)))

    def pack(partitions: Iterable[Any]) -> Packed:
        return topics.pack(grouped(partitions).items())

    def unpack(field: Packed) -> tuple[Value, ...]:
        rows = topics.unpack(field)
        return tuple(make(name, number) for name, numbers in rows for number in numbers)

    return Form(topics.shown, pack, unpack)


def one_of(kinds: Mapping[int, type]) -> Form[Any]:
    """Return the form of a record of one of several classes: its number, then its fields."""
    codecs: dict[int, Codec[Any]] = {number: codec_of(kind) for number, kind in kinds.items()}
    numbers = {kind: number for number, kind in kinds.items()}

    def pack(value: object) -> Packed:
        number = numbers[type(value)]
        return [number, *codecs[number].pack_fields(value)]

    def unpack(field: Packed) -> object:
        match field:
            case [int(number), *fields] if number in codecs:
                return codecs[number].unpack_fields(fields, {})
            case _:
                raise FieldError(f"it begins with none of {', '.join(map(str, codecs))}")

    shown = "; ".join(
        f"{number} {kinds[number].__name__}: {', '.join(codec.forms)}"
        for number, codec in codecs.items()
    )
    return Form(shown, pack, unpack)
