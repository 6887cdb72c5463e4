"""Who may change ids, the deletion feed and registrations of clients. Pure.

Leaves ledgers to `ledger_rules.py`.

Invariants: the counter of ids only rises, by at most a block; the record of a chosen id is made
with its ledger and never removed; a deletion is recorded with the deletion alone; a client
registers only nodes that end with its session.

Source: protocol rules 10.1 and 10.2; metadata design, "Ids".
"""

import re
from collections.abc import Sequence
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import LedgerId, is_ledger_id
from metadata.ledgers.deletion_feed import DELETION_CODEC
from metadata.ledgers.ledger_ids import BLOCK_IDS, FIRST_ID
from metadata.paths import (
    CHOSEN_ID_SHARDS,
    CHOSEN_IDS,
    CLIENTS,
    DELETED,
    DELETION_SHARDS,
    LEDGER_IDS,
    chosen_id_path,
    deletion_path,
    ledger_path,
)
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import CompareAndSet, Create, Delete, Operation
from metadata.store.number_blocks import unpack_block
from quire.gateway.rights.verdict import (
    ALLOWED,
    Allowed,
    Impossible,
    Known,
    Subject,
    Verdict,
    at_version,
    no_rule,
)

REGISTRATION_BYTES_MAX: Final = 4 * 1024
_CLIENT: Final = re.compile(r"[a-z0-9-]{1,64}")


def decide_counter(
    subject: Subject, operation: Operation, _: Sequence[Operation], known: Known
) -> Verdict:
    """Decide about a change of LEDGER_IDS; nothing is below it."""
    if operation.path != LEDGER_IDS:
        return no_rule(subject, operation.path, "create a node below the counter of ledger ids")
    first, what = FIRST_ID, "set the counter of ledger ids other than up by at most one block"
    match operation:
        case Create(_, value, False):
            least = FIRST_ID
        case CompareAndSet(_, value, expected):
            stored = at_version(known, LEDGER_IDS, expected)
            if isinstance(stored, Impossible):
                return stored
            try:
                first = unpack_block(LEDGER_IDS, stored.value, FIRST_ID)
            except MetadataFormatError as error:
                return Impossible(error)
            least = first + 1
        case _:
            return no_rule(subject, LEDGER_IDS, "remove the counter of ledger ids")
    try:
        end = unpack_block(LEDGER_IDS, value, FIRST_ID)
    except MetadataFormatError:
        return no_rule(subject, LEDGER_IDS, what)
    if not (subject.principal and least <= end <= first + BLOCK_IDS):
        return no_rule(subject, LEDGER_IDS, what)
    return Allowed(block=(first, end))


def decide_chosen(
    subject: Subject, operation: Operation, operations: Sequence[Operation], _: Known
) -> Verdict:
    """Decide about a change at a node below CHOSEN_IDS."""
    if _is_new_shard(operation, CHOSEN_IDS, CHOSEN_ID_SHARDS) and subject.principal:
        return ALLOWED
    ledger_id = _id_of(operation.path)
    if ledger_id is not None and operation.path == chosen_id_path(ledger_id):
        before = operations[: operations.index(operation)]
        is_with_ledger = _creates(operations, ledger_path(ledger_id))
        match operation:
            case Create(_, b"", False) if is_with_ledger:
                return ALLOWED
            case Delete(_, 0) if _creates(before, operation.path):
                return ALLOWED
            case _:
                pass
    return no_rule(subject, operation.path, "record an id without its ledger, or remove a record")


def decide_deletion(
    subject: Subject, operation: Operation, operations: Sequence[Operation], _: Known
) -> Verdict:
    """Decide about a change at a node below DELETED."""
    path = operation.path
    if _is_new_shard(operation, DELETED, DELETION_SHARDS) and subject.principal:
        return ALLOWED
    ledger_id = _id_of(path)
    if ledger_id is not None and path == deletion_path(ledger_id):
        deletes = any(
            isinstance(part, Delete) and part.path == ledger_path(ledger_id) for part in operations
        )
        match operation:
            case Create(_, value, False) if deletes and _is_deletion(path, value):
                return ALLOWED
            case _:
                pass
    return no_rule(subject, path, "record a deletion that it does not make, or remove a record")


def decide_registration(
    subject: Subject, operation: Operation, _: Sequence[Operation], __: Known
) -> Verdict:
    """Decide about a change at a node below CLIENTS."""
    path = operation.path
    head, name = path.rsplit("/", 1)
    if head == CLIENTS and subject.principal and _CLIENT.fullmatch(name):
        match operation:
            case Create(_, value, True) if _is_held(path, value):
                return ALLOWED
            case CompareAndSet(_, value, _) if subject.has_ephemeral(path):
                if _is_held(path, value):
                    return ALLOWED
            case Delete() if subject.has_ephemeral(path):
                return ALLOWED
            case _:
                pass
    return no_rule(subject, path, "change the registration of another client")


def _is_new_shard(operation: Operation, above: str, count: int) -> bool:
    match operation:
        case Create(path, b"", False):
            if path == above:
                return True
            name = path.removeprefix(f"{above}/")
            return name.isascii() and name.isdecimal() and name in map(str, range(count))
        case _:
            return False


def _id_of(path: str) -> LedgerId | None:
    name = path.rpartition("/")[2]
    if not (name.isascii() and name.isdecimal()) or len(name) > len(str(2**63)):
        return None
    return LedgerId(int(name)) if is_ledger_id(int(name)) else None


def _creates(operations: Sequence[Operation], path: str) -> bool:
    return any(isinstance(operation, Create) and operation.path == path for operation in operations)


def _is_deletion(path: str, value: bytes) -> bool:
    try:
        DELETION_CODEC.unpack(path, value)
    except MetadataFormatError:
        return False
    return True


def _is_held(path: str, value: bytes) -> bool:
    if len(value) > REGISTRATION_BYTES_MAX:
        return False
    try:
        unpack_held(path, value)
    except MetadataFormatError:
        return False
    return True
