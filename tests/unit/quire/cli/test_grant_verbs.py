"""Roles on ledgers, given, listed and taken away by operators."""

import pytest

from metadata.security.errors import GrantNotFoundError, InvalidGrantError
from quire.cli.rights_verbs import grant_parser as parser
from quire.errors import ExitCode, exit_code
from tests.support.quire.memory_cluster import MemoryCluster

ALICE = "User:CN=alice,O=example"


@pytest.fixture
async def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    await memory_cluster.create()
    return memory_cluster


async def test_roles_are_given_listed_and_taken_away(cluster: MemoryCluster) -> None:
    first = {"principal": ALICE, "role": "recoverer", "ledgers": "chain-prefix:orders"}
    other = {"principal": "User:bob", "role": "reader", "ledgers": "all"}
    for row in (first, other):
        words = ("add", row["principal"], row["role"], row["ledgers"])
        assert await cluster.run(parser(), *words) == (ExitCode.DONE, row)
    assert await cluster.run(parser(), "list") == (ExitCode.DONE, [first, other])
    assert await cluster.run(parser(), "list", "User:bob") == (ExitCode.DONE, [other])
    _, row = await cluster.run(parser(), "remove", "User:bob", "reader", "all")
    assert row == {**other, "removed": True}
    assert await cluster.run(parser(), "list") == (ExitCode.DONE, [first])


async def test_refuses_what_is_no_grant(cluster: MemoryCluster) -> None:
    for words in (("alice", "reader", "all"), (ALICE, "reader", "topic:a")):
        with pytest.raises(InvalidGrantError) as refused:
            await cluster.run(parser(), "add", *words)
        assert exit_code(refused.value) == ExitCode.USAGE
    with pytest.raises(GrantNotFoundError) as missing:
        await cluster.run(parser(), "remove", ALICE, "reader", "all")
    assert exit_code(missing.value) == ExitCode.NOT_FOUND
