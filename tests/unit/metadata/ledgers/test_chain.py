"""Values of chains: changes, stored form, and invalid bytes."""

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import InvalidChainNameError, LedgersCollectedError, MetadataFormatError
from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.chain import (
    APPLIED_CODEC,
    HEAD_CODEC,
    LINK_CODEC,
    AppliedBatch,
    ChainHead,
    ChainLink,
    LinkedLedger,
    check_chain_name,
)

TOKEN = UpdateToken(b"t" * 16)
OTHER_TOKEN = UpdateToken(b"o" * 16)
NATURALS = st.integers(0, 2**63 - 1)

ledgers = st.builds(
    LinkedLedger,
    ledger_id=NATURALS.map(LedgerId),
    created_ms=NATURALS,
    last_entry_id=st.none() | st.integers(-1, 2**53).map(EntryId),
    length=st.none() | NATURALS,
)
links = st.builds(
    ChainLink,
    ledgers=st.lists(ledgers, max_size=5).map(tuple),
    published_ms=NATURALS,
    token=st.binary(min_size=16, max_size=16).map(UpdateToken),
    application=st.text(max_size=20),
    batch=st.integers(-1, 2**63 - 1),
)


def link(*created_ms: int) -> ChainLink:
    named = tuple(LinkedLedger(LedgerId(7 + i), ms) for i, ms in enumerate(created_ms))
    return ChainLink(named, 1_000, OTHER_TOKEN)


@given(links)
def test_a_link_round_trips(value: ChainLink) -> None:
    assert LINK_CODEC.unpack("/a", LINK_CODEC.pack("/a", value)) == value


@given(st.integers(0, 10**9), st.integers(0, 10**9), NATURALS)
def test_a_head_round_trips(first: int, more: int, collected: int) -> None:
    head = ChainHead(TOKEN, first, first + more, collected)
    assert HEAD_CODEC.unpack("/a", HEAD_CODEC.pack("/a", head)) == head


def test_the_last_batch_of_an_application_round_trips() -> None:
    applied = AppliedBatch("query 7", 12, 345)
    assert APPLIED_CODEC.unpack("/a", APPLIED_CODEC.pack("/a", applied)) == applied


@given(st.binary(max_size=60))
def test_other_bytes_are_a_format_error(value: bytes) -> None:
    for unpack in (LINK_CODEC.unpack, HEAD_CODEC.unpack, APPLIED_CODEC.unpack):
        with pytest.raises(MetadataFormatError):
            unpack("/a", value)


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_changed_head_is_a_format_error_or_another_head(cut: int) -> None:
    value = bytearray(HEAD_CODEC.pack("/a", ChainHead(TOKEN, 3, 9)))
    value[cut] ^= 0xFF
    try:
        assert HEAD_CODEC.unpack("/a", bytes(value)) is not None
    except MetadataFormatError as error:
        assert "/a" in str(error)  # noqa: PT017 - either end is right


def test_each_link_has_the_next_number() -> None:
    head = ChainHead(TOKEN)
    for number in range(3):
        assert (head.first_index, head.next_index) == (0, number)
        head = head.with_link(link(5), replaces=False)
    assert head.token == OTHER_TOKEN


def test_a_link_that_replaces_is_the_only_one() -> None:
    head = ChainHead(TOKEN, 2, 9).with_link(link(5), replaces=True)
    assert (head.first_index, head.next_index) == (9, 10)


def test_trimming_never_restores_links_nor_passes_the_end() -> None:
    head = ChainHead(TOKEN, 2, 9)
    assert head.with_first_index(1, TOKEN).first_index == 2
    assert head.with_first_index(5, TOKEN).first_index == 5
    assert head.with_first_index(50, TOKEN).first_index == 9


def test_a_ledger_that_may_have_been_collected_is_not_linked() -> None:
    head = ChainHead(TOKEN).with_collected_before(1_000, TOKEN)
    assert head.with_link(link(1_000, 2_000), replaces=False).next_index == 1
    with pytest.raises(LedgersCollectedError, match="ledger 8"):
        head.with_link(link(2_000, 999), replaces=False)
    assert head.with_collected_before(500, TOKEN).collected_before_ms == 1_000


def test_every_change_of_a_head_has_its_own_token() -> None:
    head = ChainHead(TOKEN, 2, 9, 700)
    assert head.with_first_index(5, OTHER_TOKEN) == ChainHead(OTHER_TOKEN, 5, 9, 700)
    assert head.with_collected_before(900, OTHER_TOKEN) == ChainHead(OTHER_TOKEN, 2, 9, 900)
    assert head.with_token(OTHER_TOKEN) == ChainHead(OTHER_TOKEN, 2, 9, 700)


def test_a_chain_that_is_being_deleted_has_no_links() -> None:
    gone = ChainHead(TOKEN, 2, 9, 700).with_deletion(OTHER_TOKEN)
    assert gone == ChainHead(OTHER_TOKEN, 9, 9, 700, is_deleted=True)
    assert HEAD_CODEC.unpack("/a", HEAD_CODEC.pack("/a", gone)) == gone


def test_the_first_batch_of_an_application_round_trips() -> None:
    applied = AppliedBatch("query 7", 0, 0)
    assert APPLIED_CODEC.unpack("/a", APPLIED_CODEC.pack("/a", applied)) == applied


LEDGER_FIELDS = [7, 5, None, None]


@pytest.mark.parametrize(
    ("unpack", "fields"),
    [
        (HEAD_CODEC.unpack, [1, 10, 9, 0, TOKEN, False]),
        (HEAD_CODEC.unpack, [1, -1, 9, 0, TOKEN, False]),
        (HEAD_CODEC.unpack, [1, 0, 10**10, 0, TOKEN, False]),
        (HEAD_CODEC.unpack, [1, 0, 9, -1, TOKEN, False]),
        (HEAD_CODEC.unpack, [1, 0, 9, 0, b"short", False]),
        (HEAD_CODEC.unpack, [1, 0, 9, 0, TOKEN, 0]),
        (LINK_CODEC.unpack, [1, 7, 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [LEDGER_FIELDS[:3]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [[*LEDGER_FIELDS, 0]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [[-1, 5, None, None]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [[7, -1, None, None]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [[7, 5, -2, None]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [[7, 5, None, -1]], 5, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [LEDGER_FIELDS], -1, TOKEN, "", -1]),
        (LINK_CODEC.unpack, [1, [LEDGER_FIELDS], 5, b"short", "", -1]),
        (LINK_CODEC.unpack, [1, [LEDGER_FIELDS], 5, TOKEN, b"", -1]),
        (LINK_CODEC.unpack, [1, [LEDGER_FIELDS], 5, TOKEN, "", -2]),
        (APPLIED_CODEC.unpack, [1, b"", 0, 0]),
        (APPLIED_CODEC.unpack, [1, "", -1, 0]),
        (APPLIED_CODEC.unpack, [1, "", 0, -1]),
        (APPLIED_CODEC.unpack, [1, "", 0, 10**10]),
    ],
)
def test_a_field_out_of_range_is_a_format_error(
    unpack: Callable[[str, bytes], object], fields: list[object]
) -> None:
    with pytest.raises(MetadataFormatError, match="/a"):
        unpack("/a", msgpack.packb(fields))


@pytest.mark.parametrize("name", ["a", "orders-2026.v1_x", "A" * 200])
def test_names_of_chains(name: str) -> None:
    assert check_chain_name(name) == name


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "ä", "A" * 201, "a\n"])
def test_invalid_chain_names(name: str) -> None:
    with pytest.raises(InvalidChainNameError):
        check_chain_name(name)
