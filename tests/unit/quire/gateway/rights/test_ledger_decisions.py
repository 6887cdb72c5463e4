"""Table of decisions about ledgers, ids, deletions and registrations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from metadata.errors import NodeExistsError, NodeNotFoundError, VersionConflictError
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.ledgers.deletion_feed import deletion_of
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, Fragment, LedgerMetadata
from metadata.paths import (
    ACLS,
    BOOKIES,
    CHAINS,
    COOKIES,
    LEDGER_GRANTS,
    LEDGER_IDS,
    LEDGERS,
    LIFECYCLES,
    REGISTER,
    REPAIR_KEY,
    TOPICS,
    USERS,
    Right,
    chosen_id_path,
    deletion_path,
    ledger_path,
)
from metadata.security.ledger_roles import (
    GrantedRights,
    LedgerGrant,
    LedgerRole,
    parse_resource,
)
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored
from metadata.store.number_blocks import pack_block
from quire.gateway.rights.decisions import RULES, decide_read, decide_writes, needed_for
from quire.gateway.rights.verdict import Allowed, Impossible, Known, Refused, Subject
from tests.support.metadata.samples import A, B, C, D, open_ledger, token

ALICE, BOB = "User:alice", "User:bob"
SEVEN = LedgerId(7)
PATH, CHOSEN, GONE = ledger_path(SEVEN), chosen_id_path(SEVEN), deletion_path(SEVEN)
ZERO, THREE = Version(0), Version(3)
OLD = replace(open_ledger(7), owner=ALICE)
RECOVERING = OLD.with_recovery_begun(token(3))
CLOSED = OLD.with_closed(EntryId(4), 100, token(3))
UNOWNED = open_ledger(7)
HELD = pack_held(HeldNode(token(9), 5, b"build"))


def of(principal: str, *roles: LedgerRole, resource: str = "ledger:7") -> Subject:
    grants = [LedgerGrant(role, parse_resource(resource)) for role in roles]
    return Subject(
        principal,
        granted=GrantedRights(grants),
        has_ephemeral=lambda path: path == "/clients/client-1",
        has_id=lambda number: number == SEVEN,
    )


OWNER, OTHER, UNPROVED = of(ALICE), of(BOB), of("")
READER, WRITER = of(BOB, LedgerRole.READER), of(BOB, LedgerRole.WRITER)
RECOVERER, ADMIN = of(BOB, LedgerRole.RECOVERER), of(BOB, LedgerRole.ADMIN)
COPIER = of(BOB, LedgerRole.WRITER, LedgerRole.RECOVERER)
SUPER = Subject(BOB, is_super=True)


@dataclass(frozen=True)
class Change:
    """A change of a ledger's metadata, and the clients that may make it."""

    name: str
    old: LedgerMetadata
    new: LedgerMetadata | None
    allowed: tuple[Subject, ...]


ALL_OF_THE_LEDGER = (OWNER, ADMIN)
CLIENTS = {
    "owner": OWNER,
    "other": OTHER,
    "unproved": UNPROVED,
    "reader": READER,
    "writer": WRITER,
    "recoverer": RECOVERER,
    "writer and recoverer": COPIER,
    "admin": ADMIN,
}
MEMBERS = OLD.with_ensemble_change(EntryId(5), (A, B, D), token(4))
TWO = replace(OLD, fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(5), (A, B, D))))
UNCLAIMED = replace(OLD, custom={**OLD.custom, UNCLAIMED_NAME: "1"})
CHANGES = (
    Change("delete", OLD, None, ALL_OF_THE_LEDGER),
    Change("replace a member", OLD, MEMBERS, (*ALL_OF_THE_LEDGER, WRITER, COPIER)),
    Change("close", OLD, CLOSED, (*ALL_OF_THE_LEDGER, WRITER, COPIER)),
    Change(
        "claim",
        UNCLAIMED,
        replace(OLD, update_token=token(6)),
        (*ALL_OF_THE_LEDGER, WRITER, COPIER),
    ),
    Change("mark it unclaimed again", OLD, replace(UNCLAIMED, update_token=token(6)), ()),
    Change(
        "mark it unclaimed with another change",
        OLD,
        replace(MEMBERS, custom={**OLD.custom, UNCLAIMED_NAME: "1"}),
        (),
    ),
    Change("claim and change it", UNCLAIMED, MEMBERS, ()),
    Change("take the writer's place", OLD, replace(OLD, writer="client-2"), ALL_OF_THE_LEDGER),  # type: ignore[arg-type]
    Change("begin a recovery", OLD, RECOVERING, (*ALL_OF_THE_LEDGER, RECOVERER, COPIER)),
    Change(
        "recover",
        RECOVERING,
        RECOVERING.with_recovered((Fragment(EntryId(0), (A, B, D)),), EntryId(4), 9, token(5)),
        (*ALL_OF_THE_LEDGER, RECOVERER, COPIER),
    ),
    Change(
        "copy to a member",
        TWO,
        TWO.with_fragment(0, Fragment(EntryId(0), (A, B, D)), token(4)),
        (*ALL_OF_THE_LEDGER, COPIER),
    ),
    Change(
        "repair a closed ledger",
        CLOSED,
        CLOSED.with_fragment(0, Fragment(EntryId(0), (A, B, D)), token(4)),
        ALL_OF_THE_LEDGER,
    ),
    Change("accept a loss", CLOSED, CLOSED.with_lost([(1, 2)], 5, token(4)), ALL_OF_THE_LEDGER),
    Change("open again", CLOSED, OLD, ()),
    Change("open after a fence", RECOVERING, OLD, ()),
    Change("give it away", OLD, replace(OLD, owner=BOB), ()),
    Change("remove its owner", OLD, replace(OLD, owner=""), ()),
    Change("take a ledger without an owner", UNOWNED, replace(UNOWNED, owner=BOB), ()),
    Change("change its chain", OLD, replace(OLD, custom={"quire.chain": "mine"}), ()),
    Change("change its creation", OLD, replace(OLD, creation_token=token(8)), ()),
    Change(
        "close one without an owner",
        UNOWNED,
        UNOWNED.with_closed(EntryId(1), 1, token(3)),
        (WRITER, COPIER, ADMIN),
    ),
)


def known(old: LedgerMetadata, version: Version = THREE) -> Known:
    return Known({PATH: Stored(encode_ledger_metadata(old), version)})


def operations_of(change: Change) -> list[Operation]:
    if change.new is None:
        return [Delete(PATH, THREE), deletion_of(SEVEN, 5)]
    return [CompareAndSet(PATH, encode_ledger_metadata(change.new), THREE)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_who_may_change_a_ledger(change: Change) -> None:
    for name, subject in CLIENTS.items():
        verdict = decide_writes(subject, operations_of(change), known(change.old))
        assert isinstance(verdict, Allowed) == (subject in change.allowed), (name, verdict)
        if isinstance(verdict, Refused):
            assert subject.name in verdict.why
    assert isinstance(decide_writes(SUPER, operations_of(change), Known()), Allowed)


def change_named(name: str) -> Change:
    return next(change for change in CHANGES if change.name == name)


def test_a_refusal_names_the_role() -> None:
    change = change_named("begin a recovery")
    verdict = decide_writes(OTHER, operations_of(change), known(OLD))
    assert isinstance(verdict, Refused)
    assert "quire grant add 'User:bob' recoverer ledger:7" in verdict.why


def test_a_change_is_decided_on_the_value_that_it_replaces() -> None:
    change = operations_of(change_named("close"))
    verdict = decide_writes(OWNER, change, known(OLD, ZERO))
    assert isinstance(verdict, Impossible)
    assert isinstance(verdict.error, VersionConflictError)
    verdict = decide_writes(OWNER, change, Known())
    assert isinstance(verdict, Impossible)
    assert isinstance(verdict.error, NodeNotFoundError)
    assert needed_for(change).values == (PATH,)


NEW = encode_ledger_metadata(OLD)
ALLOCATED = (Create(CHOSEN, b""), Delete(CHOSEN, ZERO), Create(PATH, NEW))
COUNTER = Check(LEDGER_IDS, THREE)
CHOICE = (Create(PATH, NEW), Create(CHOSEN, b""), COUNTER)


def counted(free: int, version: Version = THREE) -> Known:
    return Known({LEDGER_IDS: Stored(pack_block(LEDGER_IDS, free), version)})


def test_a_client_creates_ledgers_of_its_own() -> None:
    assert isinstance(decide_writes(OWNER, ALLOCATED, Known()), Allowed)
    for subject in (OTHER, ADMIN, UNPROVED):
        assert isinstance(decide_writes(subject, ALLOCATED, Known()), Refused)
    for new in (replace(OLD, owner=""), replace(OLD, ledger_id=LedgerId(8)), CLOSED):
        changed = (*ALLOCATED[:2], Create(PATH, encode_ledger_metadata(new)))
        assert isinstance(decide_writes(OWNER, changed, Known()), Refused)
    for operations in (
        (Create(PATH, NEW),),
        (Create(PATH, NEW), Create(CHOSEN, b"")),
        (Create(PATH, b"no metadata"), *ALLOCATED[:2]),
        (*ALLOCATED[:2], Create(PATH, NEW, ephemeral=True)),
    ):
        assert isinstance(decide_writes(OWNER, operations, Known()), Refused)


def test_an_id_of_another_session_cannot_be_used() -> None:
    eight = replace(OLD, ledger_id=LedgerId(8))
    path, chosen = ledger_path(LedgerId(8)), chosen_id_path(LedgerId(8))
    creation: list[Operation] = [
        Create(chosen, b""),
        Delete(chosen, ZERO),
        Create(path, encode_ledger_metadata(eight)),
    ]
    verdict = decide_writes(OWNER, creation, Known())
    assert isinstance(verdict, Impossible)
    assert isinstance(verdict.error, NodeExistsError)


def test_a_chosen_id_was_never_allocated() -> None:
    assert isinstance(decide_writes(OWNER, CHOICE, counted(7)), Allowed)
    verdict = decide_writes(OWNER, CHOICE, counted(8))
    assert isinstance(verdict, Impossible)
    assert isinstance(verdict.error, NodeExistsError)
    assert isinstance(decide_writes(OWNER, CHOICE, counted(7, ZERO)), Impossible)
    assert LEDGER_IDS in needed_for(CHOICE).values


@pytest.mark.parametrize(
    ("operation", "block"),
    [
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 1_101), THREE), (101, 1_101)),
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 102), THREE), (101, 102)),
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 101), THREE), None),
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 100), THREE), None),
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 1_102), THREE), None),
        (CompareAndSet(LEDGER_IDS, b"", THREE), None),
        (CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 1_101), ZERO), None),
        (Create(LEDGER_IDS, pack_block(LEDGER_IDS, 1)), (1, 1)),
        (Create(LEDGER_IDS, pack_block(LEDGER_IDS, 1_001)), (1, 1_001)),
        (Create(LEDGER_IDS, pack_block(LEDGER_IDS, 1_002)), None),
        (Delete(LEDGER_IDS, THREE), None),
    ],
)
def test_the_counter_only_rises(operation: Operation, block: tuple[int, int] | None) -> None:
    verdict = decide_writes(OWNER, [operation], counted(101))
    assert (verdict.block if isinstance(verdict, Allowed) else None) == block
    assert not isinstance(decide_writes(UNPROVED, [operation], counted(101)), Allowed)


ROWS: Mapping[str, tuple[list[Operation], bool]] = {
    "make a node below the counter": (
        [Create(f"{LEDGER_IDS}/more", pack_block(LEDGER_IDS, 1))],
        False,
    ),
    "make the levels above a ledger": ([Create(f"{LEDGERS}/0000/000", b"")], True),
    "store a value there": ([Create(f"{LEDGERS}/0000/000", b"x")], False),
    "use other names there": ([Create(f"{LEDGERS}/0000/x", b"")], False),
    "remove empty levels": ([Delete(f"{LEDGERS}/0000/000", ZERO)], True),
    "make a node below a ledger": ([Create(f"{PATH}/more", b"")], False),
    "make the parents": ([Create(CHAINS, b"")], True),
    "write to a parent": ([CompareAndSet(LEDGERS, b"x", ZERO)], False),
    "make a shard of chosen ids": ([Create("/ids/chosen/63", b"")], True),
    "make another shard": ([Create("/ids/chosen/64", b"")], False),
    "record an id alone": ([Create(CHOSEN, b"")], False),
    "remove a record": ([Delete(CHOSEN, ZERO)], False),
    "remove a record before a creation": (
        [Delete(CHOSEN, ZERO), Create(CHOSEN, b""), Create(PATH, NEW)],
        False,
    ),
    "make a shard of deletions": ([Create("/deleted/7", b"")], True),
    "record a deletion alone": ([deletion_of(SEVEN, 5)], False),
    "remove a recorded deletion": ([Delete(GONE, ZERO)], False),
    "register": ([Create("/clients/client-9", HELD, ephemeral=True)], True),
    "register for ever": ([Create("/clients/client-9", HELD)], False),
    "register with anything": ([Create("/clients/client-9", b"x", ephemeral=True)], False),
    "change its registration": ([CompareAndSet("/clients/client-1", HELD, ZERO)], True),
    "remove its registration": ([Delete("/clients/client-1", ZERO)], True),
    "remove another registration": ([Delete("/clients/client-2", ZERO)], False),
    "change another registration": ([CompareAndSet("/clients/client-2", HELD, ZERO)], False),
    "register as a bookie": ([Create(f"{BOOKIES}/b", HELD, ephemeral=True)], False),
    "write a cookie": ([CompareAndSet(f"{COOKIES}/b", b"", ZERO)], False),
    "drain a bookie": ([Create(f"{LIFECYCLES}/b", b"")], False),
    "create a topic": ([Create(f"{TOPICS}/t", b"")], False),
    "write an access list": ([CompareAndSet(f"{ACLS}/1", b"", ZERO)], False),
    "give a role": ([Create(f"{LEDGER_GRANTS}/User%3Abob", b"")], False),
    "write an unknown node": ([Create("/unknown", b"")], False),
    "check what it may read": ([Check(BOOKIES, ZERO)], True),
    "check a secret": ([Check(REPAIR_KEY, ZERO)], False),
    "add a secret's check to a write": (
        [Create(f"{LEDGERS}/0000", b""), Check(f"{USERS}/u", ZERO)],
        False,
    ),
    "change a node twice": (
        [Create(f"{LEDGERS}/0000", b""), Delete(f"{LEDGERS}/0000", ZERO)],
        False,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_every_client_may_do(name: str) -> None:
    operations, is_allowed = ROWS[name]
    assert isinstance(decide_writes(OTHER, operations, Known()), Allowed) == is_allowed
    if not isinstance(operations[0], Check):
        assert not isinstance(decide_writes(UNPROVED, operations, Known()), Allowed)
    assert isinstance(decide_writes(SUPER, operations, Known()), Allowed)


def test_the_kinds_that_clients_may_change_have_rules() -> None:
    assert RULES.keys() == {kind.root for kind in REGISTER if kind.clients & ~Right.READ}


def test_one_refused_part_refuses_a_multi() -> None:
    operations: list[Operation] = [
        Create(f"{LEDGERS}/0000", b""),
        CompareAndSet(LEDGERS, b"", ZERO),
    ]
    assert isinstance(decide_writes(OTHER, operations, Known()), Refused)


def test_what_clients_may_read() -> None:
    for path in ("/", PATH, BOOKIES, TOPICS, ACLS):
        assert decide_read(UNPROVED, path) is None
    for path in (REPAIR_KEY, USERS, f"{USERS}/u", LEDGER_GRANTS, "/security", "/unknown"):
        assert decide_read(OTHER, path) is not None
        assert decide_read(SUPER, path) is None
