"""The basic types of Kafka's messages, and of leaders in answers, for handwritten codecs.

Leaves complete messages to `kafka.produce_codec`, `kafka.fetch_codec` and `kafka.frames`.

Format, big-endian. Flexible versions (KIP-482) write lengths and counts as unsigned varints of
length + 1, 0 for null, and end every structure with tagged fields: count, then (tag, size, bytes).
Other versions write lengths of strings as i16, lengths of bytes and counts as i32, -1 for null.

Invariants: a reader returns a value and the position after it, or raises one of DAMAGED or
KafkaFrameError. A length is compared with the remaining bytes before it is used. A varint has at
most 5 bytes.

Source: Kafka's protocol guide, "Protocol Primitive Types"; KIP-482, KIP-951.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, ParamSpec, TypeVar

from broker_layer.kafka.errors import KafkaFrameError

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
UUID_BYTES: Final = 16
NULL_UUID: Final = bytes(UUID_BYTES)
VARINT_BYTES_MAX: Final = 5
VARINT_MORE: Final = 0x80
"""The bit of a varint's byte that announces another byte."""
ELEMENTS_MAX: Final = 10_000
"""Maximum number of elements of all arrays of one request.

Each costs the event loop some microseconds, and other clients wait meanwhile. Clients send fewer:
consumers, producers, librdkafka, MirrorMaker and Connect name in a request the topics and
partitions that they use at one broker. Kafka advises at most 4,000 partitions there, so 10,000
leaves room for the names of their topics. Admin tools name what their user named. A request with
more ends its connection, and the broker's log says what to do.
"""
ANSWER_ELEMENTS_MAX: Final = 250_000
"""The same of an answer of another broker, and of what clients store: each element becomes an
object of some hundred bytes."""
TAGS_MAX: Final = 32
"""Maximum number of tagged fields of one structure in messages that are decoded here: Kafka's have
three at most, and each takes time, known or not. In others they count as elements."""
STRING_BYTES_MAX: Final = 0x7FFF
"""Maximum size of a string, as in Kafka, also in versions whose format has room for longer ones.
Names and ids are stored, and no ledger takes a record with one of many megabytes."""
NO_TAGS: Final = b"\0"
NODE_ENDPOINTS_TAG: Final = 0
_LEADER: Final = struct.Struct(">ii")
_UINT32_MAX: Final = 2**32 - 1
_SHORT_VARINTS: Final = tuple(bytes([value]) for value in range(0x80))
DAMAGED: Final = (IndexError, struct.error, UnicodeDecodeError)
"""Errors of reading after the end, or of text that is not UTF-8."""
Parameters = ParamSpec("Parameters")


Parsed = TypeVar("Parsed")


def parsing(parse: Callable[Parameters, Parsed]) -> Callable[Parameters, Parsed]:
    """Make a parser raise KafkaFrameError if it reads after the end, or text that is not UTF-8."""

    def parse_or_refuse(*args: Parameters.args, **named: Parameters.kwargs) -> Parsed:
        try:
            return parse(*args, **named)
        except DAMAGED as error:
            raise KafkaFrameError(f"{parse.__name__} failed: {error}") from error

    return parse_or_refuse


def too_many_elements(most: int) -> KafkaFrameError:
    """Return the error for a message with too many elements."""
    return KafkaFrameError(
        f"a message has more than {most} elements: name fewer topics, partitions or groups in one"
        " request, by several clients, or by several requests of an admin tool"
    )


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    value = data[position]
    position += 1
    if value < VARINT_MORE:
        return value, position
    value &= 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            if value > _UINT32_MAX:
                break
            return value, position
    raise KafkaFrameError("a varint has more than 32 bits")


def read_count(
    data: memoryview, position: int, element_bytes_min: int, *, is_flexible: bool
) -> tuple[int, int]:
    """Read the count of an array that is not null, and check that its elements can fit."""
    if is_flexible:
        count, position = read_varint(data, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(data, position)
        position += 4
    if count > ELEMENTS_MAX:
        raise too_many_elements(ELEMENTS_MAX)
    if not 0 <= count * element_bytes_min <= len(data) - position:
        raise KafkaFrameError(f"{count} elements do not fit in {len(data) - position} B")
    return count, position


def check_string_size(size: int) -> None:
    """Raise KafkaFrameError for a string that is too long."""
    if size > STRING_BYTES_MAX:
        text = f"a string has {size} B, and at most {STRING_BYTES_MAX} are allowed: shorten it"
        raise KafkaFrameError(text)


def read_string(data: memoryview, position: int, *, is_flexible: bool) -> tuple[str | None, int]:
    """Read a string that may be null."""
    if is_flexible:
        length, position = read_varint(data, position)
        length -= 1
        check_string_size(length)
    else:
        (length,) = INT16.unpack_from(data, position)
        position += 2
    if length < 0:
        if length == -1:
            return None, position
        raise KafkaFrameError(f"a string has a length of {length} B")
    end = position + length
    if end > len(data):
        raise KafkaFrameError(f"a string has {length} B, but {len(data) - position} B are left")
    return str(data[position:end], "utf-8"), end


def read_text(data: memoryview, position: int, *, is_flexible: bool) -> tuple[str, int]:
    """Read a string that may not be null."""
    text, position = read_string(data, position, is_flexible=is_flexible)
    if text is None:
        raise KafkaFrameError("a string is null, which is not allowed")
    return text, position


def read_bytes(
    data: memoryview, position: int, *, is_flexible: bool
) -> tuple[memoryview | None, int]:
    """Read bytes that may be null, as a view of the frame."""
    if is_flexible:
        length, position = read_varint(data, position)
        length -= 1
    else:
        (length,) = INT32.unpack_from(data, position)
        position += 4
    if length < 0:
        if length == -1:
            return None, position
        raise KafkaFrameError(f"a bytes field has a length of {length} B")
    end = position + length
    if end > len(data):
        raise KafkaFrameError(
            f"a bytes field has {length} B, but {len(data) - position} B are left"
        )
    return data[position:end], end


def read_uuid(data: memoryview, position: int) -> tuple[bytes, int]:
    """Read a UUID as its 16 bytes."""
    end = position + UUID_BYTES
    if end > len(data):
        raise KafkaFrameError("the frame ends within a UUID")
    return bytes(data[position:end]), end


def skip_tags(data: memoryview, position: int) -> int:
    """Return the position after tagged fields; their contents are ignored."""
    if not data[position]:
        return position + 1
    count, position = read_varint(data, position)
    if count > TAGS_MAX:
        raise KafkaFrameError(f"a structure has {count} tagged fields, more than {TAGS_MAX}")
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        if size > len(data) - position:
            raise KafkaFrameError(
                f"a tagged field has {size} B, but {len(data) - position} B are left"
            )
        position += size
    return position


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if 0 <= value < len(_SHORT_VARINTS):
        return _SHORT_VARINTS[value]
    assert 0 <= value <= _UINT32_MAX, value
    encoded = bytearray()
    while value >> 7:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(text: str | None, *, is_flexible: bool) -> bytes:
    """Encode a string that may be null."""
    if text is None:
        return NO_TAGS if is_flexible else INT16.pack(-1)
    encoded = text.encode()
    length = varint(len(encoded) + 1) if is_flexible else INT16.pack(len(encoded))
    return length + encoded


def count_of(count: int, *, is_flexible: bool) -> bytes:
    """Encode the count of an array that is not null."""
    return varint(count + 1) if is_flexible else INT32.pack(count)


def tag(number: int, content: bytes) -> bytes:
    """Encode one tagged field."""
    return varint(number) + varint(len(content)) + content


class CurrentLeader(NamedTuple):
    """The leader of a partition, -1 for none, and its leader epoch. Clients that sent a Produce or
    Fetch to the wrong broker learn it from the answer.
    """

    leader_id: int
    leader_epoch: int

    def encode(self) -> bytes:
        """Encode the content of the tagged field."""
        return _LEADER.pack(self.leader_id, self.leader_epoch) + NO_TAGS


class NodeEndpoint(NamedTuple):
    """Address of a leader that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the content of the tagged field."""
    parts = [count_of(len(endpoints), is_flexible=True)]
    for endpoint in endpoints:
        parts += (
            INT32.pack(endpoint.node_id),
            string(endpoint.host, is_flexible=True),
            INT32.pack(endpoint.port),
            string(endpoint.rack, is_flexible=True),
            NO_TAGS,
        )
    return b"".join(parts)
