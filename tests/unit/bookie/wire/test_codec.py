"""Control messages round-trip, and any other input raises MessageError."""

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import fields

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire import messages as m
from bookie.wire.codec import (
    RANGES_MAX,
    REPLY_BYTES_MAX,
    decode_acks,
    decode_reply,
    decode_request,
    encode_acks,
    encode_message,
)
from bookie.wire.errors import MessageError
from bookie.wire.frames import REQUEST_BYTES_MAX
from bookie.wire.messages import Message, Reply, Request, Status
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, EntryId, LedgerId

ledger_ids = st.integers(0, LEDGER_ID_MAX).map(LedgerId)
entry_ids = st.integers(0, ENTRY_ID_MAX).map(EntryId)
lacs = st.integers(NO_ENTRY, ENTRY_ID_MAX).map(EntryId)
u32s = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
statuses = st.sampled_from(Status)


def _ascending(numbers: list[EntryId]) -> tuple[tuple[int, int], ...]:
    ends = sorted(numbers)
    return tuple(zip(ends[::2], ends[1::2], strict=False))


requests = st.one_of(
    st.builds(m.Hello, texts, u32s, u32s, st.integers(0, 2**64 - 1), st.binary(max_size=99), texts),
    st.builds(m.AttachLedger, ledger_ids, st.binary(min_size=32, max_size=32)),
    st.builds(m.DetachLedger, ledger_ids),
    st.builds(m.ReadLac, ledger_ids, st.booleans()),
    st.builds(m.WriteLac, ledger_ids, lacs),
    st.builds(m.ReadEntries, ledger_ids, entry_ids, entry_ids, u32s, st.booleans()),
    st.builds(m.WaitLac, ledger_ids, lacs, st.integers(0, 60_000), u32s),
    st.builds(m.ListEntries, ledger_ids, entry_ids),
    st.just(m.Ping()),
    st.builds(m.ReportLac, ledger_ids, lacs),
    st.builds(m.ReadAccess, ledger_ids),
    st.builds(m.FenceWithoutKey, ledger_ids),
    st.builds(m.BeginLogin, texts, st.binary(max_size=99)),
    st.builds(m.ContinueLogin, st.binary(max_size=99)),
)
replies = st.one_of(
    st.builds(
        m.HelloReply, statuses, texts, u32s, st.integers(0, 2**64 - 1), u32s, u32s, texts, texts
    ),
    st.builds(m.LacReply, statuses, lacs, lacs, st.booleans()),
    st.builds(
        m.EntryRanges, statuses, st.lists(entry_ids, max_size=20).map(_ascending), st.booleans()
    ),
    st.builds(m.AccessReply, statuses, st.sampled_from([b"", bytes(range(32))])),
    st.builds(m.Pong, st.booleans(), u32s),
    st.builds(m.Refused, statuses, texts),
    st.builds(m.LoginReply, st.binary(max_size=99), st.booleans(), texts),
)


@given(requests)
def test_requests_round_trip(request: Request) -> None:
    assert decode_request(memoryview(encode_message(request))) == request


@given(replies)
def test_replies_round_trip(reply: Reply) -> None:
    assert decode_reply(memoryview(encode_message(reply))) == reply


PACKED_RANGES = struct.pack("<4Q", 0, 4, 6, 6).hex()


GOLDEN: list[tuple[Message, str]] = [
    (m.Hello("b-1", 1, 1, 0, b"", "c"), "9701a3622d31010100c400a163"),
    (
        m.AttachLedger(LedgerId(7), bytes(range(32))),
        "930207c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ),
    (m.DetachLedger(LedgerId(7)), "920307"),
    (m.ReadLac(LedgerId(7), fence=True), "930407c3"),
    (m.WriteLac(LedgerId(7), NO_ENTRY), "930507ff"),
    (m.ReadEntries(LedgerId(7), EntryId(1), EntryId(2), 300, fence=False), "9606070102cd012cc2"),
    (m.WaitLac(LedgerId(7), NO_ENTRY, 1000, 0), "950707ffcd03e800"),
    (m.ListEntries(LedgerId(2**63 - 1), EntryId(0)), "9308cf7fffffffffffffff00"),
    (m.Ping(), "9109"),
    (m.ReportLac(LedgerId(7), EntryId(5)), "930a0705"),
    (m.ReadAccess(LedgerId(7)), "920b07"),
    (m.FenceWithoutKey(LedgerId(7)), "920c07"),
    (m.ReadRights(LedgerId(7)), "920d07"),
    (m.BeginLogin("SCRAM-SHA-256", b"n,,"), "930ead534352414d2d5348412d323536c4036e2c2c"),
    (m.ContinueLogin(b"c="), "920fc402633d"),
    (m.LoginReply(b"v=", complete=True, principal="User:a"), "9447c402763dc3a6557365723a61"),
    (m.RightsReply(15), "92460f"),
    (m.HelloReply(Status.OK, "b", 1, 0, 2, 3, "", "User:a"), "994000a16201000203a0a6557365723a61"),
    (m.LacReply(Status.FENCED, EntryId(5), EntryId(9), fenced=True), "9541040509c3"),
    (
        m.EntryRanges(Status.OK, ((0, 4), (6, 6)), complete=True),
        "944200c420" + PACKED_RANGES + "c3",
    ),
    (m.Pong(writable=True, append_p99_us=20_000), "9343c3cd4e20"),
    (m.Refused(Status.CLOSING, "bye"), "93440ca3627965"),
    (m.AccessReply(Status.OK, b"k" * 32), "934500c420" + "6b" * 32),
    (m.AccessReply(Status.NO_SUCH_LEDGER, b""), "934502c400"),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda v: type(v).__name__)
def test_golden_bytes(message: Message, golden: str) -> None:
    assert encode_message(message).hex() == golden
    decode = decode_request if isinstance(message, Request) else decode_reply
    assert decode(memoryview(bytes.fromhex(golden))) == message


def test_every_message_has_golden_bytes() -> None:
    shown = {type(message) for message, _ in GOLDEN}
    assert shown == set(Request.__args__) | set(Reply.__args__)


def test_statuses_keep_their_numbers() -> None:
    names = (
        "OK NO_SUCH_ENTRY NO_SUCH_LEDGER UNKNOWN FENCED CONFLICT READ_ONLY UNAUTHORIZED DELETED"
        " BAD_REQUEST WRONG_BOOKIE UNSUPPORTED_VERSION CLOSING"
    )
    assert [(status.name, status.value) for status in Status][:13] == [
        (name, number) for number, name in enumerate(names.split())
    ]


BAD_REQUESTS: list[tuple[object, str]] = [
    ([], "starts with its opcode"),
    ({}, "not msgpack"),
    (None, "not msgpack"),
    (["4", 7, True], "starts with its opcode"),
    ([True, 7, True], "starts with its opcode"),
    ([9.0], "starts with its opcode"),
    ([0], "unknown operation 0"),
    ([16], "unknown operation 16"),
    ([-1], "unknown operation -1"),
    ([2**63], "unknown operation"),
    ([64, 0, "b", 1, 0, 2, 3, ""], "unknown operation 64"),  # a reply is not a request
    ([4, 7], "ReadLac has 2 fields, found 1"),
    ([4, 7, True, 0], "ReadLac has 2 fields, found 3"),
    ([4, -1, True], "ReadLac.ledger_id"),
    ([4, 2**63, True], "ReadLac.ledger_id"),
    ([4, True, True], "ReadLac.ledger_id"),
    ([4, 7.0, True], "ReadLac.ledger_id"),
    ([4, 7, 1], "ReadLac.fence"),
    ([4, 7, None], "ReadLac.fence"),
    ([5, 7, -2], "WriteLac.lac"),
    ([5, 7, 2**63 - 1], "WriteLac.lac"),
    ([6, 7, -1, 0, 0, False], "ReadEntries.first_entry_id"),
    ([6, 7, 0, 2**63 - 1, 0, False], "ReadEntries.last_entry_id"),
    ([6, 7, 0, 0, -1, False], "ReadEntries.bytes_max"),
    ([6, 7, 0, 0, 2**32, False], "ReadEntries.bytes_max"),
    ([7, 7, 0, 60_001, 0], "WaitLac.wait_ms"),
    ([7, 7, 0, -1, 0], "WaitLac.wait_ms"),
    ([2, 7, bytes(31)], "AttachLedger.master_key"),
    ([2, 7, bytes(33)], "AttachLedger.master_key"),
    ([2, 7, "x" * 32], "AttachLedger.master_key"),
    ([11], "ReadAccess has 1 fields, found 0"),
    ([11, -1], "ReadAccess.ledger_id"),
    ([1, "b" * 1025, 1, 1, 0, b"", "c"], "Hello.bookie_id"),
    ([1, b"b", 1, 1, 0, b"", "c"], "Hello.bookie_id"),
    ([1, "b", 1, 1, 0, bytes(8193), "c"], "Hello.credentials"),
]


@pytest.mark.parametrize(("values", "why"), BAD_REQUESTS)
def test_bad_requests_are_named(values: object, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        decode_request(memoryview(msgpack.packb(values)))


@pytest.mark.parametrize(
    "ranges",
    [
        struct.pack("<2Q", 1, 0),
        struct.pack("<6Q", 0, 1, 1, 2, 2, 1),
        struct.pack("<4Q", 5, 6, 0, 1),
        struct.pack("<2Q", 0, 2**63),
        bytes(15),
        bytes(17),
        [],
        7,
    ],
)
def test_ranges_that_do_not_ascend_are_refused(ranges: object) -> None:
    with pytest.raises(MessageError, match="ranges"):
        decode_reply(memoryview(msgpack.packb([66, 0, ranges, True])))


@pytest.mark.parametrize("key", [bytes(31), bytes(33), "k" * 32, None])
def test_a_stored_key_is_complete_or_empty(key: object) -> None:
    with pytest.raises(MessageError, match=r"AccessReply\.stored_key"):
        decode_reply(memoryview(msgpack.packb([69, 0, key])))


def test_too_many_ranges_are_refused() -> None:
    ranges = b"".join([struct.pack("<2Q", i, i) for i in range(RANGES_MAX + 1)])
    with pytest.raises(MessageError, match="ranges"):
        decode_reply(memoryview(msgpack.packb([66, 0, ranges, True])))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1 without its elements
        b"\xdf\xff\xff\xff\xff",  # a map of 2^32 - 1
        b"\xc6\xff\xff\xff\xff",  # a byte string of 2^32 - 1
        b"\xdb\x7f\xff\xff\xff",  # a text of 2^31 - 1
        b"\xc9\xff\xff\xff\xff\x01",  # an extension of 2^32 - 1
        b"\x91" * 5000,  # nested very deeply
        b"\x91" * 5000 + b"\x01",
        b"\x91\x09\x09",  # bytes behind the message
        b"\x92\x09\x91\x01",  # an array within
        b"\x92\x09\x81\x01\x01",  # a map within
        b"\x81\x90\x01",  # a key that cannot be one
        b"\x92\x01\xa1\xff",  # a text that is not UTF-8
        b"\xd7\xff" + b"\xff" * 8,  # a timestamp out of range
    ],
)
def test_bytes_that_are_no_message(body: bytes) -> None:
    for decode in decode_request, decode_reply:
        with pytest.raises(MessageError):
            decode(memoryview(body))


def test_oversized_messages_are_refused_unread() -> None:
    with pytest.raises(MessageError, match="over the limit"):
        decode_request(memoryview(bytes(REQUEST_BYTES_MAX + 1)))
    with pytest.raises(MessageError, match="over the limit"):
        decode_reply(memoryview(bytes(REPLY_BYTES_MAX + 1)))


@pytest.mark.parametrize("announced", [1, 64, 60_000, 2**32 - 1])
@pytest.mark.parametrize("depth", [1, 2, 1000])
def test_no_more_is_allocated_than_arrived(announced: int, depth: int) -> None:
    arrays = (b"\xdd" + announced.to_bytes(4, "big")) * depth
    body = memoryview(arrays + b"\x90" * (REQUEST_BYTES_MAX - len(arrays)))
    for decode in decode_request, decode_reply:
        tracemalloc.start()
        with pytest.raises(MessageError):
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= 2 * REQUEST_BYTES_MAX


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_else(garbage: bytes) -> None:
    for decode in decode_request, decode_reply:
        with suppress(MessageError):
            decode(memoryview(garbage))


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | texts,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from([*range(11), *range(63, 70)]), st.lists(plain, max_size=8))
def test_any_fields_give_a_message_or_its_error(opcode: int, values: list[object]) -> None:
    body = memoryview(msgpack.packb([opcode, *values]))
    for decode in decode_request, decode_reply:
        with suppress(MessageError):
            assert len(fields(decode(body))) == len(values)


@given(requests, st.data())
def test_truncated_requests_are_refused(request: Request, data: st.DataObject) -> None:
    body = encode_message(request)
    length = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MessageError):
        decode_request(memoryview(body)[:length])


@given(st.lists(st.tuples(u32s, statuses), max_size=50))
def test_acks_round_trip(acks: list[tuple[int, Status]]) -> None:
    assert decode_acks(memoryview(encode_acks(acks))) == acks


def test_golden_acks() -> None:
    body = encode_acks([(1, Status.OK), (0xFFFFFFFE, Status.FENCED)])
    assert body.hex() == "01000000" + "00000000" + "feffffff" + "04000000"


@pytest.mark.parametrize("body", [bytes(7), bytes(9), b"\1\0\0\0\xff\0\0\0"])
def test_bad_acks(body: bytes) -> None:
    with pytest.raises(MessageError):
        decode_acks(memoryview(body))


@pytest.mark.parametrize(
    "body",
    [
        [14, "SCRAM-SHA-256", bytes(m.SASL_BYTES_MAX + 1)],
        [14, "S" * 1_025, b"n,,"],
        [14, b"SCRAM-SHA-256", b"n,,"],
        [14, "SCRAM-SHA-256", "n,,"],
        [14, "SCRAM-SHA-256"],
        [15, bytes(m.SASL_BYTES_MAX + 1)],
        [15, None],
        [15],
    ],
)
def test_a_message_of_a_login_is_bounded(body: list[object]) -> None:
    with pytest.raises(MessageError):
        decode_request(memoryview(msgpack.packb(body)))


def test_a_message_of_a_login_shows_no_proof() -> None:
    shown = [m.BeginLogin("PLAIN", b"secret"), m.ContinueLogin(b"secret")]
    assert "secret" not in repr([*shown, m.LoginReply(b"secret", complete=False, principal="")])
