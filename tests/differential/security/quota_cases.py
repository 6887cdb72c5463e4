"""Differential cases: setting, finding and removing quotas.

Leaves who may do this to `rights_cases`, which must come first: it expects no quotas. Leaves what
quotas do to `pause_cases`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.answers import at
from tests.differential.security.cluster_calls import ALTER_QUOTAS, DESCRIBE_QUOTAS
from tests.differential.security.secure_run import SecureRun
from tests.differential.wire import Tree

USER, CLIENT, ADDRESS = "user", "client-id", "ip"
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
PERCENTAGE, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
KEYS: Final = (PRODUCER, CONSUMER, PERCENTAGE, MUTATIONS, CONNECTIONS)
VALUES: Final = (-1.0, 0.0, 0.5, 1.5, 2.0**31, math.inf, 2.0**63, 1e300)
"""Without NaN, which Kafka 4.1.0 stores, and after which it serves no client."""
HIGH: Final = 1e9
"""A rate that no client of the script reaches."""
EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Names = Mapping[str, str | None]
Values = Mapping[str, float | None]
"""None removes a value."""


def entry(entity: Sequence[tuple[str, str | None]], values: Values) -> Mapping[str, Tree]:
    """Return one entry of AlterClientQuotas."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in values.items()
        ],
    }


def filtered(*components: tuple[str, int, str | None], strict: bool = False) -> Mapping[str, Tree]:
    """Return a DescribeClientQuotas request."""
    rows: Tree = [
        {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components
    ]
    return {"components": rows, "strict": strict}


async def alter(run: SecureRun, name: str, *entries: Mapping[str, Tree], version: int = 1) -> None:
    """Record the answer to AlterClientQuotas."""
    values: Mapping[str, Tree] = {"entries": list(entries), "validate_only": False}
    await run.ask(f"quota/alter, {name}", ALTER_QUOTAS, version, values)


async def altering(run: SecureRun) -> None:
    """AlterClientQuotas with every key and kind of entity, and with wrong entities."""
    user, client = run.name("altered"), run.name("client")
    for version in (0, 1):
        await alter(run, f"version {version}", entry([(USER, user)], {PRODUCER: HIGH}))
    entities: Mapping[str, Names] = {
        "user": {USER: user},
        "default user": {USER: None},
        "client": {CLIENT: client},
        "default client": {CLIENT: None},
        "user and client": {USER: user, CLIENT: client},
        "user and default client": {USER: user, CLIENT: None},
        "default user and client": {USER: None, CLIENT: client},
        "defaults": {USER: None, CLIENT: None},
        "address": {ADDRESS: "10.9.8.7"},
        "default address": {ADDRESS: None},
        "nothing": {},
        "unknown kind": {"group": client},
        "user and address": {USER: user, ADDRESS: "10.9.8.7"},
        "user and unknown kind": {USER: user, "group": client},
        "empty user": {USER: ""},
        "empty client": {CLIENT: ""},
        "long user": {USER: "x" * 300},
        "name of the default": {USER: "<default>"},
        "distinguished name": {USER: f"CN={user},O=Example"},
        "colon in address": {ADDRESS: "::1"},
        "name of an address": {ADDRESS: "no address"},
        "empty address": {ADDRESS: ""},
    }
    for name, names in entities.items():
        for key in KEYS if len(name.split()) < 3 else (PRODUCER, CONNECTIONS):
            await alter(run, f"{key} of {name}", entry(list(names.items()), {key: HIGH}))
    await alter(run, "the user twice", entry([(USER, user), (USER, "other")], {PRODUCER: HIGH}))
    await _listed(run, "altering")


async def altering_values(run: SecureRun) -> None:
    """AlterClientQuotas with values and keys that are right and wrong."""
    user = [(USER, run.name("valued"))]
    for value in VALUES:
        for key in KEYS:
            entity = [(ADDRESS, "10.9.8.7")] if key == CONNECTIONS else user
            await alter(run, f"{key}={value}", entry(entity, {key: value}))
    await _listed(run, "values")
    own: Mapping[str, Values] = {
        "no values": {},
        "an unknown key": {"unknown": HIGH},
        "an empty key": {"": HIGH},
        "two keys": {PRODUCER: HIGH, CONSUMER: HIGH},
        "right and wrong keys": {PERCENTAGE: HIGH, "unknown": HIGH},
        "set and remove": {MUTATIONS: HIGH, CONSUMER: None},
        "remove what is not set": {CONSUMER: None},
        "remove an unknown key": {"unknown": None},
        "remove a key of addresses": {CONNECTIONS: None},
        "remove the others": {PRODUCER: None, MUTATIONS: None},
    }
    for name, values in own.items():
        await alter(run, name, entry(user, values))
    twice = entry(user, {PRODUCER: HIGH})
    op: Tree = {"key": PRODUCER, "value": 2 * HIGH, "remove": False}
    await alter(run, "a key twice", {**twice, "ops": [op, op]})
    await alter(run, "no entries")
    await alter(run, "an entity twice", twice, entry(user, {CONSUMER: HIGH}))
    right = entry([(USER, run.name("right"))], {PRODUCER: HIGH})
    await alter(run, "right and wrong entries", right, entry(user, {"unknown": HIGH}))
    unwritten: Mapping[str, Tree] = {
        "entries": [entry([(USER, run.name("unwritten"))], {PRODUCER: HIGH})],
        "validate_only": True,
    }
    await run.ask("quota/alter, only validate", ALTER_QUOTAS, 1, unwritten)
    await _listed(run, "keys")


async def describing(run: SecureRun) -> None:
    """DescribeClientQuotas with every filter."""
    user, other, client = run.name("found"), run.name("found-too"), run.name("client")
    entities: Sequence[Names] = (
        *({USER: user}, {USER: other}, {USER: None}),
        *({CLIENT: client}, {CLIENT: None}),
        *({USER: user, CLIENT: client}, {USER: user, CLIENT: None}),
        *({USER: None, CLIENT: client}, {USER: None, CLIENT: None}),
    )
    entries: list[Mapping[str, Tree]] = [
        entry(list(names.items()), {PRODUCER: HIGH + place, MUTATIONS: HIGH})
        for place, names in enumerate(entities)
    ]
    entries += [entry([(ADDRESS, name)], {CONNECTIONS: HIGH}) for name in ("10.9.8.7", None)]
    await alter(run, "to find", *entries)
    await run.wait_spread()
    parts: Mapping[str, Sequence[tuple[str, int, str | None]]] = {
        "all": [],
        **{f"any {kind}": [(kind, SPECIFIED, None)] for kind in (USER, CLIENT, ADDRESS)},
        **{f"default {kind}": [(kind, DEFAULT, None)] for kind in (USER, CLIENT, ADDRESS)},
        "user": [(USER, EXACT, user)],
        "client": [(CLIENT, EXACT, client)],
        "address": [(ADDRESS, EXACT, "10.9.8.7")],
        "absent user": [(USER, EXACT, run.name("absent"))],
        "empty user": [(USER, EXACT, "")],
        "user and client": [(USER, EXACT, user), (CLIENT, EXACT, client)],
        "user and any client": [(USER, EXACT, user), (CLIENT, SPECIFIED, None)],
        "user and default client": [(USER, EXACT, user), (CLIENT, DEFAULT, None)],
        "any user and client": [(USER, SPECIFIED, None), (CLIENT, EXACT, client)],
        "any user and any client": [(USER, SPECIFIED, None), (CLIENT, SPECIFIED, None)],
        "user and address": [(USER, EXACT, user), (ADDRESS, EXACT, "10.9.8.7")],
        "user twice": [(USER, EXACT, user), (USER, EXACT, other)],
        "unknown kind": [("group", EXACT, user)],
        "empty kind": [("", SPECIFIED, None)],
        "unknown match": [(USER, 3, None)],
        "exact without name": [(USER, EXACT, None)],
        "default with name": [(USER, DEFAULT, user)],
        "any with name": [(USER, SPECIFIED, user)],
    }
    for name, components in parts.items():
        for strict in (False, True):
            shown = f"quota/find {name}, {'strict' if strict else 'not strict'}"
            values = filtered(*components, strict=strict)
            await run.ask(shown, DESCRIBE_QUOTAS, 1, values)
    await run.ask("quota/find in version 0", DESCRIBE_QUOTAS, 0, filtered())
    await remove_all(run)
    await _listed(run, "removal")


async def _listed(run: SecureRun, after: str) -> None:
    """Record all quotas, and remove them."""
    await run.wait_spread()
    await run.ask(f"quota/left after {after}", DESCRIBE_QUOTAS, 1, filtered())
    await remove_all(run)


async def remove_all(run: SecureRun) -> None:
    """Remove all quotas."""
    answer = await run.quietly(DESCRIBE_QUOTAS, 1, filtered())
    rows = at(answer, "entries")
    assert isinstance(rows, Sequence)
    removals: list[Mapping[str, Tree]] = []
    for row in rows:
        values = at(row, "values")
        assert isinstance(values, Sequence)
        ops: Tree = [{"key": at(value, "key"), "value": 0.0, "remove": True} for value in values]
        removals.append({"entity": at(row, "entity"), "ops": ops})
    await run.quietly(ALTER_QUOTAS, 1, {"entries": removals, "validate_only": False})
    await run.wait_spread()


CASES: Final = (altering, altering_values, describing)
