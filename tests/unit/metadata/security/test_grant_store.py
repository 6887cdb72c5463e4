"""Grants on ledgers: their bytes, changes by compare-and-set, and the table that follows them."""

import random

import msgpack
import pytest

from metadata.errors import MetadataFormatError, OutcomeUnknownError
from metadata.ids import LedgerId
from metadata.paths import LEDGER_GRANTS
from metadata.security.errors import (
    GrantNotFoundError,
    InvalidGrantError,
    TooManyGrantsError,
    TooManyPrincipalsError,
)
from metadata.security.grant_store import GrantStore, GrantTable
from metadata.security.ledger_grants import (
    GRANTS_CODEC,
    GRANTS_MAX,
    grant_node,
    grants_of,
    principal_of_node,
)
from metadata.security.ledger_roles import (
    LedgerFacts,
    LedgerGrant,
    LedgerRight,
    LedgerRole,
    parse_resource,
)
from metadata.store.memory import MemoryMetadataStore
from tests.until import until

ALICE, BOB = "User:CN=alice,O=example", "User:b/ob"
READ_7 = LedgerGrant(LedgerRole.READER, parse_resource("ledger:7"))
READ_8 = LedgerGrant(LedgerRole.READER, parse_resource("ledger:8"))
FACTS = LedgerFacts(LedgerId(7))


async def grants_in(store: GrantStore) -> dict[str, tuple[LedgerGrant, ...]]:
    return {record.principal: record.grants async for page in store.pages() for record in page}


def test_a_record_keeps_its_grants() -> None:
    record = grants_of(ALICE, [READ_8, READ_7, READ_8])
    assert record is not None
    assert record.grants == (READ_7, READ_8)
    assert GRANTS_CODEC.unpack("test", GRANTS_CODEC.pack("test", record), principal=ALICE) == record
    assert grants_of(ALICE, []) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, 2),
        (1, []),
        (1, [["reader"]]),
        (1, [["king", "all"]]),
        (1, [["reader", "ledger:x"]]),
        (1, [["reader", "ledger:8"], ["reader", "ledger:7"]]),
        (1, [["reader", "ledger:7"], ["reader", "ledger:7"]]),
        (1, 5),
    ],
)
def test_refuses_other_bytes(field: int, value: object) -> None:
    fields: list[object] = [1, [["reader", "ledger:7"]]]
    found = GRANTS_CODEC.unpack("test", msgpack.packb(fields), principal=ALICE)
    assert found == grants_of(ALICE, [READ_7])
    fields[field] = value
    with pytest.raises(MetadataFormatError):
        GRANTS_CODEC.unpack("test", msgpack.packb(fields), principal=ALICE)


def test_nodes_of_principals_differ_and_are_read_back() -> None:
    for each in (ALICE, BOB, "User:gr\u00fc\u00dfe", "User:..", "User:%2F"):
        assert "/" not in grant_node(each)
        assert principal_of_node(grant_node(each)) == each
    for node in ("User:alice", "User%3aalice", "%ff", "alice"):
        with pytest.raises(MetadataFormatError):
            principal_of_node(node)


async def test_grants_are_added_listed_and_removed(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    grants = GrantStore(store, rng)
    await grants.add(ALICE, READ_7)
    await grants.add(ALICE, READ_7)
    await grants.add(ALICE, READ_8)
    await grants.add(BOB, READ_7)
    assert await grants_in(grants) == {ALICE: (READ_7, READ_8), BOB: (READ_7,)}
    await grants.remove(BOB, READ_7)
    assert await store.children(LEDGER_GRANTS) == [grant_node(ALICE)]
    with pytest.raises(GrantNotFoundError, match="does not have the role reader on ledger:7"):
        await grants.remove(BOB, READ_7)
    assert await grants.get(BOB) == frozenset()


async def test_refuses_what_cannot_be_granted(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    grants = GrantStore(store, rng, principals_max=1)
    with pytest.raises(InvalidGrantError, match="not a principal"):
        await grants.add("alice", READ_7)
    await grants.add(ALICE, READ_7)
    with pytest.raises(TooManyPrincipalsError):
        await grants.add(BOB, READ_7)
    many = [
        LedgerGrant(LedgerRole.READER, parse_resource(f"ledger:{i}")) for i in range(GRANTS_MAX + 1)
    ]
    with pytest.raises(TooManyGrantsError, match="chain-prefix"):
        grants_of(ALICE, many)


async def test_an_unknown_outcome_is_decided(
    store: MemoryMetadataStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, calls = store.create, 0

    async def applied_without_an_answer(path: str, value: bytes) -> None:
        nonlocal calls
        calls += 1
        await create(path, value)
        raise OutcomeUnknownError(path, "test")

    monkeypatch.setattr(store, "create", applied_without_an_answer)
    grants = GrantStore(store, rng)
    await grants.add(ALICE, READ_7)
    assert await grants_in(grants) == {ALICE: (READ_7,)}
    assert calls == 1


async def test_a_table_follows_grants_and_reports_changes(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    grants, table = GrantStore(other_store, rng), GrantTable(store, rng)
    changed: list[str] = []
    await grants.add(ALICE, READ_7)
    await table.start()
    cancel = table.on_change(changed.append)
    assert table.granted_to(ALICE).rights_on(FACTS) == LedgerRight.READ
    assert table.granted_to(BOB).rights_on(FACTS) == LedgerRight.NONE
    await grants.add(BOB, READ_7)
    await until(lambda: table.granted_to(BOB).rights_on(FACTS) == LedgerRight.READ)
    await grants.remove(ALICE, READ_7)
    await until(lambda: table.granted_to(ALICE).rights_on(FACTS) == LedgerRight.NONE)
    assert changed == [BOB, ALICE]
    cancel()
    await table.aclose()


async def test_a_record_that_cannot_be_read_leaves_the_grants_in_use(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    grants, table = GrantStore(other_store, rng), GrantTable(store, rng)
    await grants.add(ALICE, READ_7)
    await table.start()
    path = f"{LEDGER_GRANTS}/{grant_node(ALICE)}"
    stored = await other_store.get(path)
    await other_store.compare_and_set(path, msgpack.packb([99]), stored.version)
    await grants.add(BOB, READ_7)
    await until(lambda: table.granted_to(BOB).rights_on(FACTS) == LedgerRight.READ)
    assert table.granted_to(ALICE).rights_on(FACTS) == LedgerRight.READ
    await table.aclose()
