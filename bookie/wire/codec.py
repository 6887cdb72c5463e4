"""Codec of control messages, in msgpack, and of the answers to adds and to a read.

Leaves framing to `bookie.wire.frames`, and checking batches to the client. A message is a flat
msgpack array: its opcode, then its fields in order.

Format of an ENTRIES frame's body, a short header and complete batches after it, little-endian:

| offset | size | field |
|---|---|---|
| 0 | 2 | status of `next_entry_id` (`Status`): OK when only the size limit ended the answer |
| 2 | 2 | batch count |
| 4 | 4 | reserved, 0 |
| 8 | 8 | this bookie's LAC for the ledger (signed) |
| 16 | 8 | `next_entry_id`: the first requested entry that is not in the answer |
| 24 | | the batches, back to back |

Invariants: for any input the decoder raises only MessageError and allocates at most a small
multiple of the input's size. The batches hold, in order and without gaps, every requested entry
below `next_entry_id`; the first batch may begin before the first requested entry (keyed batches are
not cut).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeVar

import msgpack

from bookie.wire import messages as m
from bookie.wire.batch import BatchView, Buffer, parse_header
from bookie.wire.errors import MessageError
from bookie.wire.frames import REQUEST_BYTES_MAX
from bookie.wire.messages import Message, Reply, Request, Status
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, EntryId

TEXT_BYTES_MAX: Final = 1024
RANGES_MAX: Final = 100_000
REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
ITEMS_MAX: Final = 64
"""Maximum number of items in a message. Messages have far fewer."""

_U32_MAX: Final = 2**32 - 1

_REQUESTS: Final[dict[int, type[Request]]] = {
    1: m.Hello,
    2: m.AttachLedger,
    3: m.DetachLedger,
    4: m.ReadLac,
    5: m.WriteLac,
    6: m.ReadEntries,
    7: m.WaitLac,
    8: m.ListEntries,
    9: m.Ping,
    10: m.ReportLac,
    11: m.ReadAccess,
    12: m.FenceWithoutKey,
    13: m.ReadRights,
    14: m.BeginLogin,
    15: m.ContinueLogin,
}
_REPLIES: Final[dict[int, type[Reply]]] = {
    64: m.HelloReply,
    65: m.LacReply,
    66: m.EntryRanges,
    67: m.Pong,
    68: m.Refused,
    69: m.AccessReply,
    70: m.RightsReply,
    71: m.LoginReply,
}
_OPCODES: Final[dict[type[Message], int]] = {
    **{cls: code for code, cls in _REQUESTS.items()},
    **{cls: code for code, cls in _REPLIES.items()},
}
_ACK = struct.Struct("<II")
_RANGE = struct.Struct("<QQ")
_STATUSES: Final = {int(status): status for status in Status}
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    cls: tuple(field.name for field in fields(cls)) for cls in _OPCODES
}
MessageT = TypeVar("MessageT", bound=Message)


def encode_message(message: Message) -> bytes:
    """Return a control message's body."""
    values = [getattr(message, name) for name in _FIELDS[type(message)]]
    if isinstance(message, m.EntryRanges):
        values[_FIELDS[m.EntryRanges].index("ranges")] = _pack_ranges(message.ranges)
    packed: bytes = msgpack.packb([_OPCODES[type(message)], *values])
    return packed


def decode_request(body: memoryview) -> Request:
    """Decode a message from a client. Raises MessageError."""
    return _decode(body, _REQUESTS, REQUEST_BYTES_MAX)


def decode_reply(body: memoryview) -> Reply:
    """Decode a message from a bookie. Raises MessageError."""
    return _decode(body, _REPLIES, REPLY_BYTES_MAX)


def encode_acks(acks: Sequence[tuple[int, Status]]) -> bytes:
    """Encode answers to adds, each a (request id, status)."""
    return b"".join([_ACK.pack(request_id, status) for request_id, status in acks])


def decode_acks(body: memoryview) -> list[tuple[int, Status]]:
    """Decode the body of an ACKS frame. Raises MessageError."""
    if len(body) % _ACK.size:
        raise MessageError(f"{len(body)} bytes are not a whole number of acks")
    try:
        return [(request_id, _STATUSES[status]) for request_id, status in _ACK.iter_unpack(body)]
    except KeyError as error:
        raise MessageError(f"an ack with an unknown status: {error}") from None


def _decode(body: memoryview, known: Mapping[int, type[MessageT]], bytes_max: int) -> MessageT:
    if len(body) > bytes_max:
        raise MessageError(
            f"a control message of {len(body)} bytes is over the limit of {bytes_max}"
        )
    try:
        values = _unpack(body)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise MessageError(f"not msgpack, or not a flat array: {error}") from None
    if not values or type(values[0]) is not int:
        raise MessageError("a message is an array that starts with its opcode")
    message_class = known.get(values[0])
    if message_class is None:
        raise MessageError(f"unknown operation {values[0]}")
    names = _FIELDS[message_class]
    if len(values) - 1 != len(names):
        raise MessageError(
            f"{message_class.__name__} has {len(names)} fields, found {len(values) - 1}"
        )
    arguments = [
        _check(message_class.__name__, name, value)
        for name, value in zip(names, values[1:], strict=True)
    ]
    make: Callable[..., MessageT] = message_class
    return make(*arguments)


def _unpack(body: memoryview) -> list[object]:
    """Decode a flat array, item by item. Decoding nested arrays would allocate each level at its
    announced length, before its items have arrived.
    """
    unpacker = msgpack.Unpacker(
        max_buffer_size=max(1, len(body)), max_array_len=0, max_map_len=0, max_ext_len=0
    )
    unpacker.feed(body)
    count = unpacker.read_array_header()
    if count > ITEMS_MAX:
        raise ValueError(f"the message has {count} items; the limit is {ITEMS_MAX}")
    values: list[object] = [unpacker.unpack() for _ in range(count)]
    if unpacker.tell() != len(body):
        raise ValueError("there are bytes after the message")
    return values


def _integer(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return value

    return check


def _text(value: object) -> object:
    if not isinstance(value, str) or len(value) > TEXT_BYTES_MAX:
        raise ValueError(f"is not a text of at most {TEXT_BYTES_MAX} characters")
    return value


def _binary(low: int, high: int) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, bytes) or not low <= len(value) <= high:
            raise ValueError(f"is not a byte string of {low} to {high} bytes")
        return value

    return check


def _stored_key(value: object) -> object:
    if not isinstance(value, bytes) or len(value) not in (0, m.MASTER_KEY_BYTES):
        raise ValueError(f"is neither empty nor a byte string of {m.MASTER_KEY_BYTES} bytes")
    return value


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")  # noqa: TRY004 - the caller names the message
    return value


def _status(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is not a status")  # noqa: TRY004 - the caller names the message
    return Status(value)


def _pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    return b"".join([_RANGE.pack(first, last) for first, last in ranges])


def _ranges(value: object) -> object:
    if not isinstance(value, bytes) or len(value) % _RANGE.size:
        raise ValueError("is not a byte string of whole ranges")
    if len(value) > RANGES_MAX * _RANGE.size:
        raise ValueError(f"holds more than {RANGES_MAX} ranges")
    pairs = list(_RANGE.iter_unpack(value))
    ends = [end for pair in pairs for end in pair]
    if any(low > high for low, high in pairs) or ends != sorted(ends):
        raise ValueError("holds ranges that do not ascend")
    if ends and ends[-1] > ENTRY_ID_MAX:
        raise ValueError(f"holds an entry id over {ENTRY_ID_MAX}")
    return tuple(pairs)


_entry_id = _integer(0, ENTRY_ID_MAX)
_lac = _integer(NO_ENTRY, ENTRY_ID_MAX)
_u32 = _integer(0, _U32_MAX)

_CHECKS: Final[dict[str, Callable[[object], object]]] = {
    "append_p99_us": _u32,
    "bookie_id": _text,
    "bytes_max": _u32,
    "client_name": _text,
    "complete": _flag,
    "credentials": _binary(0, m.CREDENTIALS_BYTES_MAX),
    "entry_bytes_max": _u32,
    "features": _integer(0, 2**64 - 1),
    "fence": _flag,
    "fenced": _flag,
    "first_entry_id": _entry_id,
    "frame_bytes_max": _u32,
    "highest_entry_id": _lac,
    "lac": _lac,
    "last_entry_id": _entry_id,
    "ledger_id": _integer(0, LEDGER_ID_MAX),
    "master_key": _binary(m.MASTER_KEY_BYTES, m.MASTER_KEY_BYTES),
    "mechanism": _text,
    "principal": _text,
    "ranges": _ranges,
    "reason": _text,
    "rights": _u32,
    "sasl_message": _binary(0, m.SASL_BYTES_MAX),
    "status": _status,
    "stored_key": _stored_key,
    "wait_ms": _integer(0, int(m.WAIT_S_MAX * 1000)),
    "wire_version": _u32,
    "wire_version_max": _u32,
    "wire_version_min": _u32,
    "writable": _flag,
}
"""One check per field name. A field name has the same meaning in every message."""

assert all(name in _CHECKS for names in _FIELDS.values() for name in names), "an unchecked field"


def _check(message_name: str, field_name: str, value: object) -> object:
    try:
        return _CHECKS[field_name](value)
    except ValueError as error:
        raise MessageError(f"{message_name}.{field_name} {error}") from None


_HEADER = struct.Struct("<HHIqq")
ENTRIES_HEADER_BYTES: Final = _HEADER.size
ENTRIES_BATCHES_MAX: Final = 65_535
"""Maximum of the batch count. An answer with more batches ends early."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Answer to a read or a long poll."""

    status: Status
    lac: EntryId
    next_entry_id: EntryId
    batches: tuple[BatchView, ...]


def encode_entries_header(
    status: Status, lac: EntryId, next_entry_id: EntryId, batch_count: int
) -> bytes:
    """Return the header before the batches in an ENTRIES frame."""
    return _HEADER.pack(status, batch_count, 0, lac, next_entry_id)


def encode_entries(
    status: Status, lac: EntryId, next_entry_id: EntryId, batches: Sequence[Buffer]
) -> list[Buffer]:
    """Return the body of an ENTRIES frame as buffers to write one after another."""
    return [encode_entries_header(status, lac, next_entry_id, len(batches)), *batches]


def decode_entries(body: memoryview) -> Entries:
    """Decode the body of an ENTRIES frame. The batches are views and not checked yet. Raises
    MessageError or BatchError.
    """
    if len(body) < ENTRIES_HEADER_BYTES:
        raise MessageError(f"{len(body)} bytes are too few for an answer to a read")
    status, count, _reserved, lac, next_entry_id = _HEADER.unpack_from(body)
    known = _STATUSES.get(status)
    if known is None:
        raise MessageError(f"status {status} is unknown: a newer release may have sent it")
    if not NO_ENTRY <= lac <= ENTRY_ID_MAX or not 0 <= next_entry_id <= ENTRY_ID_MAX + 1:
        raise MessageError(f"LAC {lac} or next entry {next_entry_id} is out of range")
    batches: list[BatchView] = []
    offset = ENTRIES_HEADER_BYTES
    for _ in range(count):
        header = parse_header(body, offset)
        batches.append(BatchView(body[offset : offset + header.size], header))
        offset += header.size
    if offset != len(body):
        raise MessageError(f"{len(body) - offset} bytes after the last batch of an answer")
    return Entries(known, EntryId(lac), EntryId(next_entry_id), tuple(batches))
