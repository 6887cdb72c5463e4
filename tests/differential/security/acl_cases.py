"""Differential cases: making, finding and removing access control lists.

Leaves what the lists allow to `rights_cases`. The lists of other cases must not exist yet.
"""

from collections.abc import Mapping
from typing import Final

from tests.differential.security.secure_run import SecureRun
from tests.differential.wire import Tree

DESCRIBE: Final = ("DescribeAcls", 29)
CREATE: Final = ("CreateAcls", 30)
DELETE: Final = ("DeleteAcls", 31)
ANY = 1
TOPIC, GROUP, CLUSTER, TRANSACTION, TOKEN, USER = 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, ALTER, DESCRIBES = 2, 3, 4, 7, 8
DENY, ALLOW = 2, 3
CLUSTER_NAME: Final = "kafka-cluster"
KINDS: Final = {
    "unknown kind": 0,
    "any kind": 1,
    "topic": TOPIC,
    "group": GROUP,
    "cluster": CLUSTER,
    "transaction": TRANSACTION,
    "token": TOKEN,
    "user": USER,
    "absent kind": 8,
}
OPERATIONS: Final = range(16)
"""All operations; 0 and 15 do not exist."""
NO_KINDS: Final = ("unknown kind", "any kind", "absent kind")


def binding(
    kind: int,
    name: str,
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
) -> dict[str, Tree]:
    """Return one rule of CreateAcls."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def chosen(
    kind: int = ANY,
    name: str | None = None,
    *,
    pattern: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> dict[str, Tree]:
    """Return one filter."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }


def creation(*bindings: Mapping[str, Tree]) -> Mapping[str, Tree]:
    """Return a CreateAcls request."""
    return {"creations": list(bindings)}


async def creating(run: SecureRun) -> None:
    """CreateAcls with every kind, operation and pattern, and with wrong fields."""

    async def create(name: str, *bindings: Mapping[str, Tree], version: int = 3) -> None:
        await run.ask(f"acl/create, {name}", CREATE, version, creation(*bindings))

    for version in range(4):
        await create(f"version {version}", binding(TOPIC, run.name("first")), version=version)
    topic = run.name("topic")
    for name, kind in KINDS.items():
        own = CLUSTER_NAME if kind == CLUSTER else run.name(name)
        for operation in (READ,) if name in NO_KINDS else OPERATIONS:
            await create(f"{name}, operation {operation}", binding(kind, own, operation=operation))
    for pattern in range(6):
        await create(f"topic, pattern {pattern}", binding(TOPIC, topic, pattern=pattern))
        cluster = binding(CLUSTER, CLUSTER_NAME, pattern=pattern, operation=ALTER)
        await create(f"cluster, pattern {pattern}", cluster)
    for permission in range(5):
        wrong = binding(TOPIC, topic, permission=permission)
        await create(f"permission {permission}", wrong)
    names = {"empty": "", "wildcard": "*", "space": "a b", "longest": "x" * 249, "long": "x" * 250}
    for name, own in names.items():
        await create(f"name {name}", binding(TOPIC, own))
        await create(f"prefix {name}", binding(TOPIC, own, pattern=PREFIXED))
    await create("another name of the cluster", binding(CLUSTER, "other", operation=ALTER))
    await create("user without a kind", binding(USER, "alice", operation=13))
    for name, principal in {
        "empty": "",
        "no kind": "alice",
        "another kind": "Group:alice",
        "only the kind": "User:",
        "all": "User:*",
        "a distinguished name": "User:CN=alice,O=example",
    }.items():
        await create(f"principal {name}", binding(TOPIC, topic, principal=principal))
    for name, host in {"empty": "", "address": "10.0.0.1", "name": "client.example"}.items():
        await create(f"host {name}", binding(TOPIC, topic, host=host))
    await create("none")
    await create("again", binding(TOPIC, topic))
    await create("twice", binding(TOPIC, run.name("twice")), binding(TOPIC, run.name("twice")))
    await create("right and wrong", binding(TOPIC, run.name("right")), binding(TOPIC, ""))


async def describing(run: SecureRun) -> None:
    """DescribeAcls with every filter."""
    await _clear(run)
    base = run.name("")
    rules = [
        binding(TOPIC, base + "orders"),
        binding(TOPIC, base + "orders", operation=WRITE, permission=DENY),
        binding(TOPIC, base + "orders", principal="User:bob", host="10.0.0.1"),
        binding(TOPIC, base + "ord", pattern=PREFIXED),
        binding(TOPIC, base, pattern=PREFIXED, operation=DESCRIBES),
        binding(TOPIC, "*", operation=ALTER, principal="User:*"),
        binding(TOPIC, "*", pattern=PREFIXED, operation=ALTER),
        binding(GROUP, base + "orders"),
        binding(CLUSTER, CLUSTER_NAME, operation=ALTER),
        binding(TRANSACTION, base + "orders", operation=WRITE),
        binding(TOKEN, base + "token", operation=DESCRIBES),
        binding(USER, "User:alice", operation=13),
    ]
    await run.ask("acl/rules to find", CREATE, 3, creation(*rules))
    await run.wait_spread()

    async def find(name: str, values: Mapping[str, Tree], version: int = 3) -> None:
        await run.ask(f"acl/find {name}", DESCRIBE, version, values)

    for version in range(4):
        await find(f"in version {version}", chosen(TOPIC, base + "orders"), version)
    for name, kind in KINDS.items():
        await find(f"{name}", chosen(kind))
    for pattern in range(6):
        for name, text in {
            "all": None,
            "exact": base + "orders",
            "begun": base + "orders-7",
            "prefix": base + "ord",
            "star": "*",
            "empty": "",
        }.items():
            await find(f"pattern {pattern}, {name}", chosen(TOPIC, text, pattern=pattern))
        await find(f"any kind, pattern {pattern}", chosen(ANY, base + "orders", pattern=pattern))
    for operation in OPERATIONS:
        await find(f"operation {operation}", chosen(operation=operation))
    for permission in range(5):
        await find(f"permission {permission}", chosen(permission=permission))
    for principal in ("User:alice", "User:*", "User:carol", "alice", ""):
        await find(f"principal {principal or 'empty'}", chosen(principal=principal))
    for host in ("*", "10.0.0.1", "10.0.0.2", ""):
        await find(f"host {host or 'empty'}", chosen(host=host))
    await find("cluster by name", chosen(CLUSTER, CLUSTER_NAME, pattern=LITERAL))
    await find("nothing", chosen(TOPIC, base + "absent", pattern=LITERAL))


async def deleting(run: SecureRun) -> None:
    """DeleteAcls with filters, and what is left."""
    await _clear(run)
    orders, group = run.name("orders"), run.name("group")
    rules = [
        binding(TOPIC, orders, operation=operation, principal=principal)
        for operation in (READ, WRITE, DESCRIBES)
        for principal in ("User:alice", "User:bob")
    ]
    rules += [binding(TOPIC, run.name("ord"), pattern=PREFIXED), binding(GROUP, group)]
    await run.quietly(CREATE, 3, creation(*rules))
    await run.wait_spread()

    async def delete(name: str, *filters: Mapping[str, Tree], version: int = 3) -> None:
        values: Mapping[str, Tree] = {"filters": list(filters)}
        await run.ask(f"acl/delete {name}", DELETE, version, values)
        await run.wait_spread()
        await run.ask(f"acl/left after {name}", DESCRIBE, 3, chosen())

    await delete("none")
    await delete("nothing", chosen(TOPIC, run.name("absent"), pattern=LITERAL))
    await delete("unknown kind", chosen(0))
    await delete("unknown pattern", chosen(TOPIC, orders, pattern=0))
    await delete("unknown operation", chosen(operation=99))
    await delete("unknown permission", chosen(permission=0))
    await delete("one rule", chosen(TOPIC, orders, operation=READ, principal="User:alice"))
    await delete("one rule again", chosen(TOPIC, orders, operation=READ, principal="User:alice"))
    same = chosen(TOPIC, orders, operation=WRITE)
    await delete("the same twice", same, same)
    await delete("what applies", chosen(TOPIC, orders, pattern=MATCH))
    for version in range(1, 4):
        await run.quietly(CREATE, 3, creation(binding(TOPIC, orders)))
        await run.wait_spread()
        await delete(f"in version {version}", chosen(TOPIC, orders), version=version)
    await delete("right and wrong", chosen(GROUP, group), chosen(0))


async def _clear(run: SecureRun) -> None:
    """Remove all rules."""
    await run.quietly(DELETE, 3, {"filters": [chosen()]})
    await run.wait_spread()


CASES: Final = (creating, describing, deleting)
