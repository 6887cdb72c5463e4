"""Fuzz targets for the wire decoders of client and bookie, one function at a time.

Leaves complete connections to `tests.fuzz.server_episode` and `tests.fuzz.client_episode`.
"""

import contextlib
from random import Random
from typing import Final

from bookie.wire.batch import BatchView, build_batch, is_intact
from bookie.wire.codec import (
    decode_acks,
    decode_entries,
    decode_reply,
    decode_request,
    encode_acks,
    encode_entries,
    encode_message,
)
from bookie.wire.errors import BatchError, FrameError, MessageError
from bookie.wire.frames import (
    BODY_BYTES_AT_FIRST,
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import (
    AccessReply,
    AttachLedger,
    BeginLogin,
    ContinueLogin,
    DetachLedger,
    EntryRanges,
    FenceWithoutKey,
    Hello,
    HelloReply,
    LacReply,
    ListEntries,
    LoginReply,
    Message,
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
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, EntryId, LedgerId
from tests.fuzz.crc import reference_crc32c
from tests.fuzz.findings import require
from tests.fuzz.sealing import MAC_KEY, seal_batch
from tests.fuzz.targets import KIB, ParserTarget

DIGEST_SEED: Final = 77
ONE: Final = LedgerId(1)
REFERENCE_BYTES_MAX: Final = 512

REQUESTS: Final[tuple[Request, ...]] = (
    Hello("bookie-a", 1, 1, 0, b"secret", "fuzz"),
    Hello("", 1, 9, 2**64 - 1, b"", ""),
    AttachLedger(ONE, bytes(range(32))),
    DetachLedger(ONE),
    ReadLac(ONE, fence=True),
    ReadLac(LedgerId(LEDGER_ID_MAX), fence=False),
    WriteLac(ONE, EntryId(41)),
    ReadEntries(ONE, EntryId(0), EntryId(ENTRY_ID_MAX), 2**20, fence=False),
    ReadEntries(ONE, EntryId(5), EntryId(9), 0, fence=True),
    WaitLac(ONE, EntryId(-1), 1000, 4096),
    ListEntries(ONE, EntryId(0)),
    Ping(),
    ReportLac(ONE, EntryId(3)),
    ReadAccess(ONE),
    FenceWithoutKey(ONE),
    ReadRights(ONE),
    BeginLogin("SCRAM-SHA-512", b"n,,n=user,r=abc"),
    ContinueLogin(b"c=biws,r=abcdef,p=AAAA"),
)
REPLIES: Final[tuple[Reply, ...]] = (
    HelloReply(Status.OK, "bookie-a", 1, 0, FRAME_BYTES_MAX, 2**23, "", ""),
    HelloReply(Status.OK, "bookie-a", 1, 0, FRAME_BYTES_MAX, 2**23, "", "User:CN=a,O=b"),
    RightsReply(15),
    LoginReply(b"v=AAAA", complete=True, principal="User:a"),
    HelloReply(Status.WRONG_BOOKIE, "bookie-b", 1, 0, FRAME_BYTES_MAX, 2**23, "look it up", ""),
    LacReply(Status.OK, EntryId(7), EntryId(9), fenced=True),
    EntryRanges(Status.OK, ((0, 9), (12, 12), (20, ENTRY_ID_MAX)), complete=False),
    EntryRanges(Status.OK, tuple((10 * i, 10 * i + 5) for i in range(200)), complete=True),
    AccessReply(Status.OK, bytes(range(32))),
    AccessReply(Status.NO_SUCH_LEDGER, b""),
    Pong(writable=True, append_p99_us=0),
    Refused(Status.BAD_REQUEST, "why"),
)


def nested_arrays(size: int, depth: int = 1020) -> bytes:
    """Return nested array headers, each of which announces as many items as there are bytes."""
    headers = (b"\xdd" + (size - 1).to_bytes(4, "big")) * depth
    return headers + b"\xc0" * (size - len(headers))


HOSTILE_MSGPACK: Final = (
    nested_arrays(10 * KIB),
    nested_arrays(60 * KIB),
    b"\xdd\x00\x00\xff\xf0" + b"\x90" * 0xFFF0,
    b"\xdd\x00\x00\xff\xf0" + b"\x80" * 0xFFF0,
    b"\x91" * 60_000,
    b"\xdf\x00\x01\x00\x00" + b"\xa0\xc0" * 30_000,
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
)


def sample_batches() -> tuple[bytes, ...]:
    """Return batches of every kind, mostly small ones."""
    rng = Random(5)
    plain = [b"one", b"", b"three" * 5]
    batches = [
        build_batch(ONE, EntryId(0), EntryId(-1), 0, plain, DIGEST_SEED),
        build_batch(ONE, EntryId(3), EntryId(2), 28, [b"x"], DIGEST_SEED),
        build_batch(LedgerId(2), EntryId(9), EntryId(7), 9, [b""] * 20, DIGEST_SEED),
        build_batch(ONE, EntryId(4), EntryId(3), 9, [rng.randbytes(40)] * 3, DIGEST_SEED, MAC_KEY),
        build_batch(LedgerId(3), EntryId(0), EntryId(-1), 0, [rng.randbytes(900)], DIGEST_SEED),
    ]
    cut = BatchView(batches[0]).cut(EntryId(1), EntryId(2))
    return tuple(bytes(batch) for batch in [*batches, cut])


BATCHES: Final = sample_batches()
_KNOWN_BATCHES: Final = frozenset(BATCHES)


def check_batch(data: bytes, _origin: bytes, is_sealed: bool) -> bool:
    """Check a batch as a bookie and as a client does, and the properties that both rely on."""
    try:
        view = BatchView(data)
        view.verify_crc()
    except BatchError:
        return False
    header, whole = view.header, bytes(view.data)
    require(is_sealed or whole in _KNOWN_BATCHES, "a changed batch passed its CRC")
    require(is_intact(whole), "a replay refuses what an add accepts")
    if len(whole) <= REFERENCE_BYTES_MAX and header.crc & 7 == 0:
        require(
            reference_crc32c(whole[48:], reference_crc32c(whole[:44])) == header.crc,
            "a wrong CRC passed",
        )
    payloads = view.payload_views()
    require(len(payloads) == header.count, "as many payloads as the header says")
    require(b"".join(payloads) == view.payload, "the payloads are what lies behind the digests")
    with contextlib.suppress(BatchError):
        view.verify_mac(MAC_KEY)
    with contextlib.suppress(BatchError):
        view.verify_digests(DIGEST_SEED)
    _check_cut(view, payloads)
    return True


def _check_cut(view: BatchView, payloads: list[memoryview]) -> None:
    header = view.header
    skip = header.crc % header.count
    stop = skip + 1 + (header.crc >> 12) % (header.count - skip)
    first, last = header.first_entry_id + skip, header.first_entry_id + stop - 1
    part = BatchView(view.cut(EntryId(first), EntryId(last)))
    part.verify_crc()
    wanted = payloads if header.is_keyed else payloads[skip:stop]
    require(
        [bytes(payload_view) for payload_view in part.payload_views()] == wanted,
        "a slice holds its entries",
    )
    require(view.entry(skip) == payloads[skip], "one entry is what the views show")
    built = build_batch(
        header.ledger_id,
        header.first_entry_id,
        header.lac,
        header.length_before,
        [bytes(payload) for payload in payloads],
        DIGEST_SEED,
    )
    again = BatchView(built)
    again.verify_crc()
    again.verify_digests(DIGEST_SEED)
    require(again.header[:6] == header[:6], "the header says the same when built again")


def check_entries(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Decode an answer to a read, and encode it again."""
    body = memoryview(data)
    try:
        found = decode_entries(body)
    except (MessageError, BatchError):
        return False
    batches = [batch.data for batch in found.batches]
    again = b"".join(encode_entries(found.status, found.lac, found.next_entry_id, batches))
    require(again[:4] == data[:4] and again[8:] == data[8:], "an answer is the same encoded again")
    return True


def check_request(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Decode a client's message, and encode it again."""
    return _check_message(data, is_request=True)


def check_reply(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Decode a bookie's message, and encode it again."""
    return _check_message(data, is_request=False)


def _check_message(data: bytes, *, is_request: bool) -> bool:
    found: Message
    try:
        found = decode_request(memoryview(data)) if is_request else decode_reply(memoryview(data))
    except MessageError:
        return False
    encoded = memoryview(encode_message(found))
    again: Message = decode_request(encoded) if is_request else decode_reply(encoded)
    require(again == found, "a message is the same encoded and decoded again")
    return True


def check_acks(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Decode answers to adds, and encode them again."""
    try:
        found = decode_acks(memoryview(data))
    except MessageError:
        return False
    require(encode_acks(found) == data, "acks are the same encoded again")
    return True


def check_frames(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Split a stream into frames twice, received in different pieces."""
    size = len(data)
    limit = FIRST_FRAME_BYTES_MAX if size & 1 else FRAME_BYTES_MAX
    once, is_refused_once = _cut(data, RECEIVE_BUFFER_BYTES, limit)
    piece = 1 + (sum(data[:16]) * 7 + size) % 97
    again, is_refused_again = _cut(data, piece, limit)
    require(is_refused_once == is_refused_again, "a stream is followed however it is split")
    # Frames received in one piece with the bad header are not returned: the connection is lost
    # anyway.
    require(again[: len(once)] == once, "frames are the same however the stream is split")
    require(is_refused_once or len(once) == len(again), "no frame is lost by a split")
    return bool(again)


def _cut(data: bytes, piece: int, limit: int) -> tuple[list[Frame], bool]:
    assembler = FrameAssembler(limit)
    frames: list[Frame] = []
    at = 0
    while at < len(data):
        room = assembler.get_buffer()
        count = min(len(room), piece, len(data) - at)
        require(count > 0, "there is room to receive into")
        room[:count] = data[at : at + count]
        at += count
        room.release()
        try:
            frames += assembler.buffer_updated(count)
        except FrameError:
            return frames, True
        held = len(assembler._body)
        require(held <= max(BODY_BYTES_AT_FIRST, 2 * at), "an announced frame is not believed")
    joined = b"".join(
        frame_header(frame.kind, frame.request_id, len(frame.body), frame.flags) + frame.body
        for frame in frames
    )
    require(data.startswith(joined), "frames are what was sent")
    require(assembler.is_mid_frame == (len(joined) < len(data)), "the rest waits")
    return frames, False


def sample_streams() -> tuple[bytes, ...]:
    """Return streams of some frames, as clients and bookies send them."""
    bodies: list[tuple[FrameKind, bytes]] = [
        *((FrameKind.REQUEST, encode_message(request)) for request in REQUESTS),
        *((FrameKind.REPLY, encode_message(reply)) for reply in REPLIES),
        *((FrameKind.ADD, batch) for batch in BATCHES),
        (FrameKind.ACKS, encode_acks([(1, Status.OK), (2, Status.FENCED)])),
        (FrameKind.ENTRIES, sample_answers()[0]),
    ]
    frames = [
        frame_header(kind, number, len(body), flags=number & 1 if kind is FrameKind.ADD else 0)
        + body
        for number, (kind, body) in enumerate(bodies)
    ]
    return (*frames, b"".join(frames[:6]), b"".join(frames[13:24]), b"".join(frames))


def sample_answers() -> tuple[bytes, ...]:
    """Return answers to reads."""
    none = encode_entries(Status.NO_SUCH_ENTRY, EntryId(4), EntryId(5), [])
    one = encode_entries(Status.OK, EntryId(4), EntryId(3), BATCHES[:1])
    some = encode_entries(Status.UNKNOWN, EntryId(9), EntryId(4), BATCHES[:4])
    return tuple(b"".join(each) for each in (some, one, none))


def wire_targets() -> list[ParserTarget]:
    """Return the targets of this module."""
    acks = [encode_acks([(number, status) for number, status in enumerate(Status)]), b""]
    return [
        ParserTarget(
            "frames",
            check_frames,
            sample_streams(),
            fields=((8, 4), (4, 4), (2, 1), (0, 2)),
            weight=1.5,
            allocation_base_bytes=4 * BODY_BYTES_AT_FIRST,
        ),
        ParserTarget(
            "batch",
            check_batch,
            BATCHES,
            seal=seal_batch,
            fields=((0, 2), (2, 1), (3, 1), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4)),
            weight=2,
        ),
        ParserTarget(
            "entries",
            check_entries,
            sample_answers(),
            fields=((0, 2), (2, 2), (8, 8), (16, 8), (28, 4), (64, 4)),
        ),
        ParserTarget(
            "request",
            check_request,
            tuple(encode_message(request) for request in REQUESTS),
            hostile=HOSTILE_MSGPACK,
            weight=3,
        ),
        ParserTarget(
            "reply",
            check_reply,
            tuple(encode_message(reply) for reply in REPLIES),
            hostile=HOSTILE_MSGPACK,
            weight=2,
        ),
        ParserTarget("acks", check_acks, tuple(acks[:1]), weight=0.5),
    ]
