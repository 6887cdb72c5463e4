"""Values that a restore changes, because they must not go back behind what processes saw. Pure.

Leaves writing them to `restoring.py`.

- Counters of ledger ids, producers' ids and replicas' numbers rise by a margin: ids that were given
  out after the dump are not given out again, and bookies may hold entries of such ledgers.
- A cookie counts the starts of the node that was dumped: the new node begins at version 0.
- Leader epochs rise by a margin: clients of topics ignore epochs below those that they saw.
- A ledger that is not closed becomes IN_RECOVERY: its writer, if it lives, ends.
- Every ledger gets a version above all that it can have had: no compare-and-set from before the
  restore applies, whatever state it was for.

Source: protocol rule 10.6; metadata design, "Dump and restore".
"""

from dataclasses import replace
from typing import Final

from metadata.errors import NumbersUsedUpError
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken, Version
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.ledger_ids import FIRST_ID
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, LedgerState
from metadata.paths import COOKIES, LEDGER_IDS, LEDGERS, PRODUCER_IDS, REPLICA_IDS, TOPICS
from metadata.registry.cookies import COOKIE_CODEC
from metadata.restore.dump_contents import DumpedNode
from metadata.store.number_blocks import NUMBER_MAX, pack_block, unpack_block
from metadata.topics.in_sync import REPLICA_ID_MAX
from metadata.topics.replica_numbers import REPLICA_ID_FIRST
from metadata.topics.topic import LEADER_EPOCH_MAX, NO_EPOCH, TOPIC_CODEC, TopicRecord, pack_topic

LEDGER_IDS_MARGIN: Final = 2**40
"""Ledger ids that are left out: a million new ledgers per second for twelve days."""
PRODUCER_IDS_MARGIN: Final = 2**40
REPLICA_NUMBERS_MARGIN: Final = 100_000
LEADER_EPOCHS_MARGIN: Final = 100_000
OPEN_VERSIONS_MARGIN: Final = 2 * FRAGMENTS_MAX
"""Changes of one ledger since the dump, if it was not closed then: each of its fragments may have
begun, and one position of each was marked.
"""
CLOSED_VERSIONS_MARGIN: Final = 20
"""Changes of one closed ledger since the dump that are no moves of its copies."""
MOVES_OF_A_POSITION: Final = 4
"""Moves of the copies of one position of a closed ledger since the dump, of two changes each."""

_COUNTERS: Final = {
    LEDGER_IDS: (FIRST_ID, NUMBER_MAX, LEDGER_IDS_MARGIN),
    PRODUCER_IDS: (0, NUMBER_MAX, PRODUCER_IDS_MARGIN),
    REPLICA_IDS: (REPLICA_ID_FIRST, REPLICA_ID_MAX, REPLICA_NUMBERS_MARGIN),
}
"""First number, last number and margin of each counter."""


def adjusted(node: DumpedNode) -> DumpedNode:
    """Return the node to write: its value, and the version that it must have.

    Raises MetadataFormatError for a value that this release cannot read, NumbersUsedUpError.
    """
    path, value = node.path, node.value
    if path in _COUNTERS:
        return DumpedNode(path, _raised(path, value), 0)
    if path.startswith(f"{COOKIES}/"):
        cookie, version = COOKIE_CODEC.unpack(path, value), Version(node.version)
        cookie = cookie.counted_at(cookie.starts_at(version), Version(0))
        return DumpedNode(path, COOKIE_CODEC.pack("a cookie", cookie), 0)
    if path.startswith(f"{TOPICS}/"):
        return DumpedNode(path, pack_topic(path, _with_newer_epochs(path, value)), 0)
    if path.startswith(f"{LEDGERS}/") and value:
        return _ledger(node)
    return DumpedNode(path, value, 0)


def _raised(path: str, value: bytes) -> bytes:
    first, last, margin = _COUNTERS[path]
    number = unpack_block(path, value, first)
    if number + margin > last:
        raise NumbersUsedUpError(path, number)
    return pack_block(path, number + margin)


def _with_newer_epochs(path: str, value: bytes) -> TopicRecord:
    topic = TOPIC_CODEC.unpack(path, value)
    epochs = [topic.epoch_floor, *(partition.leader_epoch for partition in topic.partitions)]
    if max(epochs) + LEADER_EPOCHS_MARGIN > LEADER_EPOCH_MAX:
        raise NumbersUsedUpError(path, max(epochs))
    partitions = tuple(
        replace(partition, leader_epoch=partition.leader_epoch + LEADER_EPOCHS_MARGIN)
        for partition in topic.partitions
    )
    floor = topic.epoch_floor
    if topic.is_tombstone and floor != NO_EPOCH:
        floor += LEADER_EPOCHS_MARGIN
    return replace(topic, partitions=partitions, epoch_floor=floor)


def _ledger(node: DumpedNode) -> DumpedNode:
    ledger = decode_ledger_metadata(node.value, node.path)
    if ledger.state is LedgerState.CLOSED:
        positions = sum(len(fragment.ensemble) for fragment in ledger.fragments)
        margin = CLOSED_VERSIONS_MARGIN + 2 * MOVES_OF_A_POSITION * positions
        return replace(node, version=node.version + margin)
    token = UpdateToken(bytes(UPDATE_TOKEN_BYTES))  # of no change of its writer (rule 1.3)
    stopped = replace(ledger, state=LedgerState.IN_RECOVERY, update_token=token)
    version = node.version + OPEN_VERSIONS_MARGIN
    return DumpedNode(node.path, encode_ledger_metadata(stopped), version)
