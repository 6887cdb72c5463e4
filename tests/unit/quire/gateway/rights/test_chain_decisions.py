"""Table of decisions about chains."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from metadata.ids import LedgerId, Version
from metadata.ledgers.chain import (
    APPLIED_CODEC,
    HEAD_CODEC,
    LINK_CODEC,
    AppliedBatch,
    ChainHead,
    ChainLink,
    LinkedLedger,
)
from metadata.ledgers.chain_owner import OWNER_CODEC
from metadata.msgpack_fields import pack
from metadata.paths import (
    chain_application_path,
    chain_creation_path,
    chain_life_path,
    chain_link_path,
    chain_owner_path,
    chain_path,
)
from metadata.security.ledger_roles import GrantedRights, LedgerGrant, LedgerRole, parse_resource
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored
from quire.gateway.rights.decisions import decide_writes, needed_for
from quire.gateway.rights.verdict import Allowed, Impossible, Known, Refused, Subject
from tests.support.metadata.samples import token

ALICE, BOB, NAME = "User:alice", "User:bob", "orders"
ZERO, FOUR = Version(0), Version(4)
HEAD, OWNER_PATH = chain_path(NAME), chain_owner_path(NAME)
CREATION, LIFE = chain_creation_path(NAME), chain_life_path(NAME, token(1))
OLD = ChainHead(token(2), first_index=1, next_index=3, collected_before_ms=10)
LINK = ChainLink((LinkedLedger(LedgerId(7), 20),), 30, token(5), "job", 6)
PUBLISHED = replace(OLD, next_index=4, token=token(5))
APPLIED = chain_application_path(NAME, "job")


def of(principal: str, role: LedgerRole | None = None, resource: str = "chain:orders") -> Subject:
    grants = () if role is None else (LedgerGrant(role, parse_resource(resource)),)
    return Subject(principal, granted=GrantedRights(grants))


OWNER, OTHER, UNPROVED = of(ALICE), of(BOB), of("")
WRITER, ADMIN = of(BOB, LedgerRole.WRITER), of(BOB, LedgerRole.ADMIN)
OF_OTHERS = of(BOB, LedgerRole.ADMIN, "chain:others")
OF_PREFIX = of(BOB, LedgerRole.ADMIN, "chain-prefix:ord")
CLIENTS = {
    "owner": OWNER,
    "other": OTHER,
    "unproved": UNPROVED,
    "reader": of(BOB, LedgerRole.READER),
    "recoverer": of(BOB, LedgerRole.RECOVERER),
    "writer": WRITER,
    "admin": ADMIN,
    "admin of another chain": OF_OTHERS,
    "admin of a prefix": OF_PREFIX,
}
ADMINS = (OWNER, ADMIN, OF_PREFIX)
WRITERS = (*ADMINS, WRITER)


def known(head: ChainHead | None = OLD, owner: str = ALICE, batch: int = 5) -> Known:
    values: dict[str, Stored | None] = {
        HEAD: None if head is None else Stored(HEAD_CODEC.pack(HEAD, head), FOUR),
        OWNER_PATH: Stored(OWNER_CODEC.pack(OWNER_PATH, owner), ZERO) if owner else None,
        APPLIED: Stored(APPLIED_CODEC.pack(APPLIED, AppliedBatch("job", batch, 2)), FOUR),
    }
    return Known(values, {CREATION: (token(1).hex(),)})


def head(new: ChainHead, version: Version = FOUR) -> CompareAndSet:
    return CompareAndSet(HEAD, HEAD_CODEC.pack(HEAD, new), version)


def link(index: int = 3, value: ChainLink = LINK) -> Create:
    path = chain_link_path(NAME, index)
    return Create(path, LINK_CODEC.pack(path, value))


def applied(batch: int = 6, index: int = 3, name: str = "job", query: str = "") -> CompareAndSet:
    value = APPLIED_CODEC.pack(APPLIED, AppliedBatch(name, batch, index, query))
    return CompareAndSet(APPLIED, value, FOUR)


OTHER_TOKEN = replace(LINK, token=token(6))
OLD_LEDGER = replace(LINK, ledgers=(LinkedLedger(LedgerId(7), 5),))
REPLACED = replace(PUBLISHED, first_index=3)
ROWS: dict[str, tuple[Sequence[Operation], Sequence[Subject]]] = {
    "publish": ([head(PUBLISHED), link(), applied()], WRITERS),
    "publish in place of all": ([head(REPLACED), link(), applied()], ADMINS),
    "change the token": ([head(OLD.with_token(token(5)))], WRITERS),
    "trim": ([head(OLD.with_first_index(2, token(5)))], ADMINS),
    "refuse older ledgers": ([head(OLD.with_collected_before(40, token(5)))], ADMINS),
    "delete": ([head(OLD.with_deletion(token(5)))], ADMINS),
    "lower an index": ([head(replace(OLD, first_index=0))], ()),
    "accept older ledgers": ([head(replace(OLD, collected_before_ms=0, token=token(5)))], ()),
    "skip an index": ([head(replace(OLD, next_index=9))], ()),
    "raise the head without a link": ([head(PUBLISHED)], ()),
    "raise the head and trim without a link": ([head(REPLACED)], ()),
    "raise the head with a batch alone": ([head(PUBLISHED), applied()], ()),
    "link at another index": ([head(PUBLISHED), link(2)], ()),
    "link with another token": ([head(PUBLISHED), link(3, OTHER_TOKEN)], ()),
    "link a collected ledger": ([head(PUBLISHED), link(3, OLD_LEDGER)], ()),
    "link without the head": ([link()], ()),
    "link twice": ([head(PUBLISHED), link(), link(4)], ()),
    "record a batch alone": ([applied()], ()),
    "record an old batch": ([head(PUBLISHED), link(), applied(5)], ()),
    "record another batch": ([head(PUBLISHED), link(), applied(7)], ()),
    "record another application": ([head(PUBLISHED), link(), applied(name="other")], ()),
    "record a batch of another query": ([head(PUBLISHED), link(), applied(query="q")], ()),
    "make nodes for links": ([Create(f"{HEAD}/links", b"")], WRITERS),
    "make nodes for batches": ([Create(f"{HEAD}/applications/ab", b"")], WRITERS),
    "store a value there": ([Create(f"{HEAD}/links", b"x")], ()),
    "make other nodes": ([Create(f"{HEAD}/other", b"")], ()),
    "remove a trimmed link": ([Check(LIFE, ZERO), Delete(chain_link_path(NAME, 0), ZERO)], ADMINS),
    "remove a link": ([Delete(chain_link_path(NAME, 1), ZERO)], ()),
    "remove the head": ([Delete(HEAD, FOUR)], ()),
    "remove the owner": ([Delete(OWNER_PATH, ZERO)], ()),
    "replace the owner": (
        [CompareAndSet(OWNER_PATH, OWNER_CODEC.pack(OWNER_PATH, BOB), ZERO)],
        (),
    ),
    "create the owner": ([Create(OWNER_PATH, OWNER_CODEC.pack(OWNER_PATH, BOB))], ()),
    "remove the life": ([Delete(LIFE, ZERO)], ()),
    "remove the token": ([Delete(CREATION, ZERO)], ()),
    "store no head": ([CompareAndSet(HEAD, b"x", FOUR)], ()),
}


@pytest.mark.parametrize("name", ROWS)
def test_who_may_change_a_chain(name: str) -> None:
    operations, allowed = ROWS[name]
    for client, subject in CLIENTS.items():
        verdict = decide_writes(subject, operations, known())
        assert isinstance(verdict, Allowed) == (subject in allowed), (client, verdict)
        if isinstance(verdict, Allowed):
            assert verdict.pins == (Check(LIFE, ZERO),)
            assert not verdict.added


def test_a_chain_without_an_owner_has_grants_alone() -> None:
    operations, _ = ROWS["publish"]
    assert isinstance(decide_writes(OWNER, operations, known(owner="")), Refused)
    assert isinstance(decide_writes(WRITER, operations, known(owner="")), Allowed)


def test_a_decision_is_made_on_the_head_that_is_replaced() -> None:
    assert isinstance(decide_writes(OWNER, [head(PUBLISHED, ZERO), link()], known()), Impossible)
    assert isinstance(decide_writes(OWNER, [head(PUBLISHED), link()], known(None)), Impossible)
    needed = needed_for([link()])
    assert needed.names == (CREATION,)
    assert needed.values == (OWNER_PATH, HEAD)


def test_any_client_completes_a_deletion() -> None:
    deleted = known(OLD.with_deletion(token(5)))
    for operation in (
        Delete(chain_link_path(NAME, 1), ZERO),
        Delete(OWNER_PATH, ZERO),
        Delete(LIFE, ZERO),
        Delete(HEAD, FOUR),
    ):
        verdict = decide_writes(OTHER, [operation], deleted)
        assert isinstance(verdict, Allowed)
        assert verdict.pins == (Check(LIFE, ZERO),)
        assert not isinstance(decide_writes(UNPROVED, [operation], deleted), Allowed)
    for new in (OLD, PUBLISHED):
        assert not isinstance(decide_writes(OWNER, [head(new)], deleted), Allowed)


def test_without_a_life_the_head_is_checked() -> None:
    deleted = known(OLD.with_deletion(token(5)))
    verdict = decide_writes(OTHER, [Delete(OWNER_PATH, ZERO)], Known(deleted.values))
    assert isinstance(verdict, Allowed)
    assert verdict.pins == (Check(HEAD, FOUR),)


FIRST = ChainHead(token(1))
CREATED: tuple[Operation, ...] = (
    Create(HEAD, HEAD_CODEC.pack(HEAD, FIRST)),
    Create(CREATION, pack(CREATION, [1, token(1)])),
    Create(LIFE, b""),
)


def test_the_creator_owns_a_chain() -> None:
    verdict = decide_writes(OTHER, CREATED, known(None))
    assert isinstance(verdict, Allowed)
    assert verdict.added == (Create(OWNER_PATH, OWNER_CODEC.pack(OWNER_PATH, BOB)),)
    assert isinstance(decide_writes(UNPROVED, CREATED, known(None)), Refused)


@pytest.mark.parametrize(
    "operations",
    [
        CREATED[:1],
        CREATED[:2],
        (Create(HEAD, HEAD_CODEC.pack(HEAD, OLD)), *CREATED[1:]),
        (*CREATED[:2], Create(chain_life_path(NAME, token(9)), b"")),
        (*CREATED, Create(f"{HEAD}/links", b"")),
        (*CREATED, Create(OWNER_PATH, OWNER_CODEC.pack(OWNER_PATH, ALICE))),
        (Create(HEAD, HEAD_CODEC.pack(HEAD, FIRST), ephemeral=True), *CREATED[1:]),
        (Create(chain_path(".hidden"), HEAD_CODEC.pack(HEAD, FIRST)),),
    ],
)
def test_no_chain_is_created_in_another_way(operations: Sequence[Operation]) -> None:
    assert isinstance(decide_writes(OTHER, operations, known(None)), Refused)
