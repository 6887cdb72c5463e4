"""Access control lists, changed and listed by operators."""

import pytest

from quire.cli.rights_verbs import acl_parser as parser
from quire.errors import NeedsConsentError, UsageError
from tests.support.quire.memory_cluster import MemoryCluster


def row(resource: str, name: str, principal: str, operation: str, **other: str) -> dict[str, str]:
    return {
        "resource": resource,
        "pattern": "LITERAL",
        "name": name,
        "permission": "ALLOW",
        "principal": principal,
        "host": "*",
        "operation": operation,
    } | other


SHOP = row("TOPIC", "orders", "User:shop", "WRITE")
REPORTS = row("TOPIC", "ord", "User:reports", "READ", pattern="PREFIXED")
GROUP = row("GROUP", "reports", "User:reports", "READ")
DENIAL = row("CLUSTER", "kafka-cluster", "User:*", "ALTER", permission="DENY", host="10.0.0.1")


async def test_lists_are_added_listed_and_removed(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()

    async def run(*words: str) -> object:
        _, found = await memory_cluster.run(parser(), *words, "-o", "json")
        return found

    assert await run("list") == []
    shop = ("--allow", "User:shop", "--topic", "orders", "--operation", "write")
    assert await run("add", *shop) == [SHOP]
    both = ("--allow", "User:reports", "--operation", "READ")
    assert await run("add", *both, "--topic", "ord", "--prefixed") == [REPORTS]
    assert await run("add", *both, "--group", "reports") == [GROUP]
    deny = ("--deny", "User:*", "--cluster", "--operation", "ALTER", "--host", "10.0.0.1")
    assert await run("add", *deny) == [DENIAL]
    assert await run("list") == [SHOP, REPORTS, GROUP, DENIAL]
    assert await run("list", "--topic", "orders") == [SHOP]
    assert await run("list", "--topic", "orders", "--pattern", "match") == [SHOP, REPORTS]
    assert await run("list", "--allow", "User:reports") == [REPORTS, GROUP]
    assert await run("list", "--deny", "User:*", "--group", "reports") == []
    assert await run("remove", "--allow", "User:reports", "--yes") == [REPORTS, GROUP]
    assert await run("list") == [SHOP, DENIAL]


async def test_combinations_are_added(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    words = ["add", "--topic", "a", "--topic", "b", "--allow", "User:x", "--allow", "User:y"]
    _, found = await memory_cluster.run(
        parser(), *words, "--operation", "READ", "--operation", "WRITE"
    )
    assert len(found) == 8


async def test_nothing_is_removed_without_consent(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    await memory_cluster.run(
        parser(), "add", "--topic", "a", "--allow", "User:x", "--operation", "READ"
    )
    with pytest.raises(NeedsConsentError, match="remove 1 ACLs"):
        await memory_cluster.run(parser(), "remove", "--topic", "a")
    with pytest.raises(UsageError, match="no ACL is named"):
        await memory_cluster.run(parser(), "remove", "--yes")
    _, found = await memory_cluster.run(parser(), "list")
    assert len(found) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--allow", "User:x", "--operation", "READ"],
        ["--topic", "a", "--operation", "READ"],
        ["--topic", "a", "--allow", "User:x"],
        ["--topic", "a", "--allow", "User:x", "--operation", "FLY"],
        ["--topic", "a", "--allow", "User:x", "--operation", "CLUSTER_ACTION"],
        ["--topic", "a", "--allow", "x", "--operation", "READ"],
        ["--topic", "", "--allow", "User:x", "--operation", "READ"],
    ],
    ids=" ".join,
)
async def test_wrong_arguments_change_nothing(
    memory_cluster: MemoryCluster, words: list[str]
) -> None:
    await memory_cluster.create()
    with pytest.raises(UsageError):
        await memory_cluster.run(parser(), "add", *words)
    _, found = await memory_cluster.run(parser(), "list")
    assert found == []
