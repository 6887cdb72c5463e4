"""Bytes of a gateway's protocol: golden ones, round trips, and what is refused."""

import pytest

from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    ValueTooLargeError,
    VersionConflictError,
)
from metadata.gateway.codec import (
    Code,
    Reply,
    decode_reply,
    decode_request,
    names_of,
    packed_names,
    packed_stored,
    packed_welcome,
    reply_frame,
    request_frame,
    stored_of,
    versions_of,
    welcome_of,
)
from metadata.gateway.errors import GatewayFormatError, GatewayRefusedError
from metadata.gateway.failures import TEXT_CHARACTERS_MAX, failure_fields, failure_of
from metadata.gateway.frames import LENGTH_BYTES, FrameAssembler, framed
from metadata.gateway.messages import (
    Children,
    CloseSession,
    CreateNode,
    Get,
    Hello,
    Multi,
    Ping,
    Request,
    Unwatch,
    Watch,
    Welcome,
    is_path,
)
from metadata.ids import Version
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Stored

ONE = Version(1)
GOLDEN: tuple[tuple[Request, str], ...] = (
    (
        Hello(1, 1, 5, bytes(16), 6_000, "c"),
        "0000001d 9800070101 05 c41000000000000000000000000000000000 cd1770 a163",
    ),
    (Ping(), "00000003 920107"),
    (Get("/a", fresh=True), "00000008 950207 a22f61 c3c2"),
    (Children("/a", agreed=True), "00000008 950307 a22f61 c2c3"),
    (
        CreateNode(Create("/a", b"v", ephemeral=True), make_parents=False),
        "0000000b 960407 a22f61 c40176 c3c2",
    ),
    (
        Multi(
            (Create("/a", b""), CompareAndSet("/b", b"", ONE), Delete("/c", ONE), Check("/d", ONE))
        ),
        "00000020 930507 94 9400a22f61c400c2 9401a22f62c40001 9302a22f6301 9303a22f6401",
    ),
    (Watch(9, "/a", of_children=True), "00000008 950607 09 a22f61 c3"),
    (Unwatch(9), "00000004 930707 09"),
    (CloseSession(), "00000003 920807"),
)


@pytest.mark.parametrize(("request_", "golden"), GOLDEN, ids=lambda each: type(each).__name__)
def test_requests_have_these_bytes(request_: Request, golden: str) -> None:
    frame = request_frame(7, request_)
    assert frame == bytes.fromhex(golden)
    assert decode_request(frame[LENGTH_BYTES:]) == (7, request_)


def test_replies_and_results() -> None:
    assert reply_frame(Code.EVENT, 7) == bytes.fromhex("00000004 930207c0")
    assert decode_reply(bytes.fromhex("930007a161")) == Reply(Code.OK, 7, "a")
    welcome = Welcome(1, 2**63 - 1, bytes(16), 6_000, 50)
    assert welcome_of(packed_welcome(welcome)) == welcome
    stored = Stored(b"v", ONE, ephemeral=True)
    assert stored_of(packed_stored(stored)) == stored
    for names in ([], ["a"], ["a", "b c"]):
        assert names_of(packed_names(names)) == names
    assert versions_of([0, 1]) == [0, 1]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "c1",
        "a161",
        "90",
        "920907",  # an unknown kind
        "9201",  # a ping without a number
        "930107c0",  # with a field
        "9201cf0000000100000000",  # a number over 32 bits
        "950207a161c3c2",  # a relative path
        "950207a22f61c301",  # an int for a bool
        "93050790",  # an empty multi
        "9305079193 09a22f6101",  # an unknown operation
        "93050791 9302a22f61ff",  # a negative version
        "9800070101 05 c401 00 cd1770 a163",  # a short token
        "dd00010000",
    ],
)
def test_what_is_no_request(body: str) -> None:
    with pytest.raises(GatewayFormatError):
        decode_request(bytes.fromhex(body))


def test_a_path_has_one_form() -> None:
    for path in ("/", "/a", "/a/b.c", "/..a/b", "/%2E", "/a" * 512):
        assert is_path(path), path
    for path in (
        *("", "a", "/a/", "//a", "/a//b", "/.", "/..", "/a/../b", "/a/./b", "/a/.."),
        *("/a b", "/\x00", "/ä", "/a\n", "/a" * 513),
    ):
        assert not is_path(path), path


@pytest.mark.parametrize("result", [None, [], [1, 2, 3], "x", [b"", -1, False], [b"", 0, 1]])
def test_what_is_no_node(result: object) -> None:
    with pytest.raises(GatewayFormatError):
        stored_of(result)  # type: ignore[arg-type]
    with pytest.raises(GatewayFormatError):
        welcome_of(result)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        NodeExistsError("/a"),
        NodeNotFoundError("/a"),
        NodeNotEmptyError("/a"),
        VersionConflictError("/a", ONE),
        OutcomeUnknownError("/a", "why"),
        StoreUnavailableError("there", "why"),
        ValueTooLargeError("/a", 5, 4),
        StoreRefusedError("/a", "there", "why"),
        GatewayRefusedError("/a", "there", "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_arrive_as_they_are(error: MetadataError) -> None:
    found = failure_of(failure_fields(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.retriable == error.retriable


def test_other_errors_are_refusals_and_texts_are_bounded() -> None:
    found = failure_of(failure_fields(MetadataFormatError("it", "x" * 10_000)))
    assert type(found) is StoreRefusedError
    assert len(found.why) == TEXT_CHARACTERS_MAX
    for fields in ([], [99], [1], [1, 5], [4, "/a", "x"], ["1", "/a"]):
        with pytest.raises(GatewayFormatError):
            failure_of(fields)  # type: ignore[arg-type]


def test_frames_are_cut_wherever_they_are_split() -> None:
    stream = b"".join(framed(bytes([number]) * number) for number in range(1, 40))
    for step in (1, 3, 7, 1_000):
        assembler, bodies = FrameAssembler(40), list[bytes]()
        for start in range(0, len(stream), step):
            bodies += assembler.feed(stream[start : start + step])
        assert bodies == [bytes([number]) * number for number in range(1, 40)]
        assert not assembler.is_mid_frame
    for length in (0, 41, 2**32 - 1):
        with pytest.raises(GatewayFormatError):
            FrameAssembler(40).feed(length.to_bytes(4))
