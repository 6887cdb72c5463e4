"""Roles on ledgers: what each one includes, and which ledgers a resource covers."""

import pytest

from metadata.ids import LedgerId
from metadata.security.errors import InvalidGrantError
from metadata.security.ledger_roles import (
    EVERY_RIGHT,
    NO_GRANTS,
    RIGHTS_OF_ROLE,
    GrantedRights,
    LedgerFacts,
    LedgerGrant,
    LedgerRight,
    LedgerRole,
    chain_rights_of,
    parse_resource,
    parse_role,
    rights_of,
)

ALICE, BOB = "User:CN=alice,O=example", "User:bob"
FACTS = LedgerFacts(LedgerId(7), ALICE, "orders.eu")
READ, APPEND, FENCE, RECOVERY_ADD, MANAGE = LedgerRight


def granted(role: LedgerRole, *resources: str) -> GrantedRights:
    return GrantedRights([LedgerGrant(role, parse_resource(resource)) for resource in resources])


def test_every_role_has_rights() -> None:
    assert set(RIGHTS_OF_ROLE) == set(LedgerRole)
    assert RIGHTS_OF_ROLE[LedgerRole.READER] == READ
    assert RIGHTS_OF_ROLE[LedgerRole.WRITER] == APPEND
    assert RIGHTS_OF_ROLE[LedgerRole.RECOVERER] == READ | FENCE | RECOVERY_ADD
    assert RIGHTS_OF_ROLE[LedgerRole.ADMIN] == EVERY_RIGHT
    assert EVERY_RIGHT == READ | APPEND | FENCE | RECOVERY_ADD | MANAGE


def test_an_owner_has_every_right_and_others_have_none() -> None:
    assert rights_of(ALICE, NO_GRANTS, FACTS) == EVERY_RIGHT
    assert rights_of(BOB, NO_GRANTS, FACTS) == LedgerRight.NONE


def test_a_ledger_without_an_owner_belongs_to_no_client() -> None:
    nobodys = LedgerFacts(LedgerId(7))
    assert rights_of("", NO_GRANTS, nobodys) == LedgerRight.NONE
    assert rights_of("", granted(LedgerRole.ADMIN, "all"), nobodys) == LedgerRight.NONE
    assert rights_of(BOB, NO_GRANTS, nobodys) == LedgerRight.NONE


@pytest.mark.parametrize(
    ("resource", "is_covered"),
    [
        ("all", True),
        ("ledger:7", True),
        ("ledger:77", False),
        ("owner:" + ALICE, True),
        ("owner:" + BOB, False),
        ("chain:orders.eu", True),
        ("chain:orders", False),
        ("chain-prefix:orders", True),
        ("chain-prefix:orders.eu.", False),
        ("chain-prefix:rders", False),
    ],
)
def test_a_resource_covers_its_ledgers(resource: str, is_covered: bool) -> None:
    rights = rights_of(BOB, granted(LedgerRole.READER, resource), FACTS)
    assert rights == (READ if is_covered else LedgerRight.NONE)


def test_a_chain_resource_covers_no_ledger_without_a_chain() -> None:
    grants = granted(LedgerRole.READER, "chain:a", "chain-prefix:a")
    assert rights_of(BOB, grants, LedgerFacts(LedgerId(7), ALICE)) == LedgerRight.NONE


def test_rights_of_several_grants_add_up() -> None:
    grants = GrantedRights(
        [
            LedgerGrant(LedgerRole.READER, parse_resource("ledger:7")),
            LedgerGrant(LedgerRole.WRITER, parse_resource("ledger:7")),
            LedgerGrant(LedgerRole.RECOVERER, parse_resource("chain-prefix:orders")),
            LedgerGrant(LedgerRole.ADMIN, parse_resource("ledger:8")),
        ]
    )
    assert rights_of(BOB, grants, FACTS) == READ | APPEND | FENCE | RECOVERY_ADD
    assert rights_of(BOB, grants, LedgerFacts(LedgerId(9))) == LedgerRight.NONE


@pytest.mark.parametrize(
    "text", ["all", "ledger:0", "chain:a.b", "chain-prefix:a", "owner:User:CN=a:b,O=c"]
)
def test_resources_keep_their_text(text: str) -> None:
    assert parse_resource(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ledger",
        "ledger:",
        "ledger:07",
        "ledger:-1",
        "ledger:\u0667",
        "ledger:9223372036854775808",
        "all:x",
        "chain:",
        "chain:a\nb",
        "chain:" + "a" * 513,
        "owner:alice",
        "topic:a",
    ],
)
def test_refuses_other_resources(text: str) -> None:
    with pytest.raises(InvalidGrantError, match="write a principal as User:NAME"):
        parse_resource(text)


def test_refuses_an_unknown_role() -> None:
    with pytest.raises(InvalidGrantError, match="none of reader, writer, recoverer, admin"):
        parse_role("owner")


def test_rights_on_a_chain() -> None:
    assert chain_rights_of(ALICE, NO_GRANTS, "orders", ALICE) == EVERY_RIGHT
    assert chain_rights_of("", granted(LedgerRole.ADMIN, "all"), "orders", "") == LedgerRight.NONE
    for resource in ("chain:orders", "chain-prefix:ord", f"owner:{ALICE}", "all"):
        grants = granted(LedgerRole.WRITER, resource)
        assert chain_rights_of(BOB, grants, "orders", ALICE) == APPEND
    grants = granted(LedgerRole.WRITER, "ledger:7", "chain:order", f"owner:{BOB}")
    assert chain_rights_of(BOB, grants, "orders", ALICE) == LedgerRight.NONE
