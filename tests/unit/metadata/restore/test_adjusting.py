"""Counts and epochs that must not go back after a restore (10.6)."""

import pytest

from metadata.errors import MetadataFormatError, NumbersUsedUpError
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.paths import (
    LEDGER_IDS,
    PRODUCER_IDS,
    REPLICA_IDS,
    cookie_path,
    ledger_path,
    position_path,
    topic_path,
)
from metadata.registry.cookies import COOKIE_CODEC, CookieRecord
from metadata.restore.adjusting import (
    CLOSED_VERSIONS_MARGIN,
    LEADER_EPOCHS_MARGIN,
    LEDGER_IDS_MARGIN,
    MOVES_OF_A_POSITION,
    OPEN_VERSIONS_MARGIN,
    PRODUCER_IDS_MARGIN,
    REPLICA_NUMBERS_MARGIN,
    adjusted,
)
from metadata.restore.dump_contents import DumpedNode
from metadata.store.number_blocks import NUMBER_MAX, pack_block, unpack_block
from metadata.topics.replica_numbers import REPLICA_ID_FIRST
from metadata.topics.topic import LEADER_EPOCH_MAX, TOPIC_CODEC, TopicId, new_topic, pack_topic
from tests.support.metadata.samples import A, open_ledger, token

COOKIE = CookieRecord(BookieId("b"), bytes(16), 5, 3, bytes(32))


@pytest.mark.parametrize(
    ("path", "first", "margin"),
    [
        (LEDGER_IDS, 1, LEDGER_IDS_MARGIN),
        (PRODUCER_IDS, 0, PRODUCER_IDS_MARGIN),
        (REPLICA_IDS, REPLICA_ID_FIRST, REPLICA_NUMBERS_MARGIN),
    ],
)
def test_counters_rise(path: str, first: int, margin: int) -> None:
    number = first + 3_000
    node = adjusted(DumpedNode(path, pack_block(path, number), 3))
    assert unpack_block(path, node.value, first) == number + margin
    assert margin > 1_000_000 or path == REPLICA_IDS
    assert node.version == 0


def test_a_counter_near_its_end_is_refused() -> None:
    with pytest.raises(NumbersUsedUpError):
        adjusted(DumpedNode(LEDGER_IDS, pack_block(LEDGER_IDS, NUMBER_MAX), 3))


@pytest.mark.parametrize(("before", "version"), [(0, 0), (0, 7), (5, 2)])
def test_a_cookie_counts_the_starts_of_its_old_node(before: int, version: int) -> None:
    cookie = COOKIE.counted_at(before, Version(0))
    path = cookie_path(COOKIE.bookie_id)
    node = adjusted(DumpedNode(path, COOKIE_CODEC.pack("a cookie", cookie), version))
    restored = COOKIE_CODEC.unpack(path, node.value)
    assert restored.starts_at(Version(0)) == before + version
    assert restored.instance == COOKIE.instance


def test_leader_epochs_rise_and_keep_their_order() -> None:
    topic = new_topic("orders", TopicId(bytes(16)), 5, [1, 2], {}).with_leaders({1: 3})
    path = topic_path("orders")
    restored = TOPIC_CODEC.unpack(
        path, adjusted(DumpedNode(path, pack_topic(path, topic), 4)).value
    )
    assert [partition.leader_epoch for partition in restored.partitions] == [
        LEADER_EPOCHS_MARGIN,
        LEADER_EPOCHS_MARGIN + 1,
    ]
    assert (restored.topic_id, restored.epoch_floor) == (topic.topic_id, -1)
    gone = topic.with_deletion().as_tombstone()
    restored = TOPIC_CODEC.unpack(path, adjusted(DumpedNode(path, pack_topic(path, gone), 5)).value)
    assert restored.epoch_floor == 1 + LEADER_EPOCHS_MARGIN
    worn = gone.above(LEADER_EPOCH_MAX)
    with pytest.raises(NumbersUsedUpError):
        adjusted(DumpedNode(path, pack_topic(path, worn), 5))


def test_the_writer_of_an_open_ledger_is_stopped() -> None:
    ledger = open_ledger()
    path = ledger_path(ledger.ledger_id)
    node = adjusted(DumpedNode(path, encode_ledger_metadata(ledger), 3))
    assert node.version == 3 + OPEN_VERSIONS_MARGIN
    restored = decode_ledger_metadata(node.value, path)
    assert restored.state is LedgerState.IN_RECOVERY
    assert restored.fragments == ledger.fragments
    assert restored.update_token not in (ledger.update_token, token(3))


def test_a_closed_ledger_stays_at_a_version_above_its_moves() -> None:
    closed = open_ledger().with_closed(EntryId(4), 100, token(4))
    path, value = ledger_path(closed.ledger_id), encode_ledger_metadata(closed)
    moves = 2 * MOVES_OF_A_POSITION * closed.quorum.ensemble_size
    node = adjusted(DumpedNode(path, value, 2))
    assert node == DumpedNode(path, value, 2 + CLOSED_VERSIONS_MARGIN + moves)


def test_other_values_stay() -> None:
    path = ledger_path(LedgerId(7))
    for kept in (
        DumpedNode(path.rpartition("/")[0], b"", 0),
        DumpedNode(position_path(A), b"any", 9),
    ):
        assert adjusted(kept) == DumpedNode(kept.path, kept.value, 0)


def test_a_value_that_cannot_be_read_is_refused() -> None:
    for path in (LEDGER_IDS, cookie_path(A), topic_path("a"), "/ledgers/0000"):
        with pytest.raises(MetadataFormatError):
            adjusted(DumpedNode(path, b"\xc1", 0))
