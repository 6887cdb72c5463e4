"""Differential cases: every request by users with every profile of rights.

Leaves the profiles to `profiles` and the requests to the `*_calls` modules.

Invariants: each user changes its own topics, groups and transactions, so that what one of them may
do changes no answer to another. A list of everything is reduced to what all users share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tests.differential.answers import Json, at
from tests.differential.batches import Batch
from tests.differential.group_cases import COMMIT, commit_values
from tests.differential.run import METADATA, store
from tests.differential.security.acl_cases import CREATE, DELETE, chosen, creation
from tests.differential.security.calls import (
    DOOMED,
    SHARED_GROUP,
    SHARED_ID,
    SHARED_TOPIC,
    Call,
    Cell,
    Shared,
)
from tests.differential.security.cluster_calls import CLUSTER_CALLS
from tests.differential.security.golden import MARK
from tests.differential.security.group_calls import GROUP_CALLS
from tests.differential.security.profiles import PROFILES, rule
from tests.differential.security.secure_run import SecureRun
from tests.differential.security.topic_calls import TOPIC_CALLS
from tests.differential.security.transaction_calls import TRANSACTION_CALLS
from tests.differential.topic_cases import create_values, new_topic
from tests.differential.transaction_cases import Transactional
from tests.differential.wire import Tree

CALLS: Final[Sequence[Call]] = (*TOPIC_CALLS, *GROUP_CALLS, *TRANSACTION_CALLS, *CLUSTER_CALLS)
CREATED_MAX: Final = 50
"""Maximum number of topics in one request."""
KEPT_FOREVER: Final = "-1"
"""Kafka deletes records with old times while the script runs, unless the topic keeps them."""
RULES_MAX: Final = 500
"""Maximum number of rules in one request."""


@dataclass(frozen=True, slots=True)
class _User:
    profile: str
    short: str
    """Beginning of the names of this user alone, after the prefix of the run."""


async def using(run: SecureRun) -> None:
    """Send each request as each user."""
    users = [_User(profile, f"p{place}-") for place, profile in enumerate(PROFILES)]
    shared = await _prepare(run, users)
    for call in CALLS:
        for user in users:
            cell = Cell(run, user.short, shared)
            await _send(run, call, user, cell)


async def _send(run: SecureRun, call: Call, user: _User, cell: Cell) -> None:
    name = f"right/{call.name}{MARK}{user.profile}"
    values = call.values(cell)
    answer = await run.ask(
        name,
        call.api,
        call.version,
        values,
        client=cell.user,
        is_patient=call.is_patient,
        without=call.without,
    )
    if name not in run.answers:
        return
    if call.listed is not None:
        run.answers[name] = _shared_of(run, answer, *call.listed)
    run.answers[name] = _without_short(run.answers[name], user.short)


def _shared_of(run: SecureRun, answer: Tree, field: str, key: str) -> Json:
    """Return which shared names are in a list of everything, and the error."""
    items = at(answer, field)
    names = [at(item, key) for item in items] if isinstance(items, Sequence) else []
    shared = [run.name(each) for each in (SHARED_TOPIC, SHARED_GROUP, SHARED_ID)]
    found = [each.removeprefix(run.prefix) for each in shared if each in names]
    return {"error": cast("Json", at(answer, "error_code")), "listed": cast("Json", found)}


def _without_short(value: Json, short: str) -> Json:
    if isinstance(value, dict):
        return {key: _without_short(part, short) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_short(item, short) for item in value]
    return value.replace(short, "") if isinstance(value, str) else value


async def _prepare(run: SecureRun, users: Sequence[_User]) -> Shared:
    """Make what the requests are about, then the users and their rights."""
    await run.quietly(DELETE, 3, {"filters": [chosen()]})
    topic = await run.topic(SHARED_TOPIC, retention_ms=KEPT_FOREVER)
    await store(run, topic, Batch())
    for short in (SHARED_GROUP, *(f"{user.short}{SHARED_GROUP}" for user in users)):
        await run.quietly(COMMIT, 2, commit_values(run.name(short), topic, 1))
    transactional = Transactional(run, run.name(SHARED_ID))
    await transactional.start()
    own = [run.name(f"{user.short}{each}") for user in users for each in DOOMED]
    await _make_topics(run, own)
    ids = await _ids_of(run, [topic, *own])
    names = [run.name(user.short) for user in users]
    await run.add_users(names)
    rules = [
        rule(text, run.prefix, run.name(user.short))
        for user in users
        for text in PROFILES[user.profile]
    ]
    for start in range(0, len(rules), RULES_MAX):
        answer = await run.quietly(CREATE, 3, creation(*rules[start : start + RULES_MAX]))
        results = at(answer, "results")
        assert isinstance(results, Sequence)
        assert all(at(result, "error_code") == 0 for result in results), results
    await run.wait_spread()
    return Shared(ids, transactional.producer, transactional.epoch)


async def _make_topics(run: SecureRun, names: Sequence[str]) -> None:
    for start in range(0, len(names), CREATED_MAX):
        kept = {"retention.ms": KEPT_FOREVER}
        topics = [new_topic(name, configs=kept) for name in names[start : start + CREATED_MAX]]
        await run.quietly(("CreateTopics", 19), 5, create_values(*topics))
    for name in names:
        await run.wait_ready(name, 1)


async def _ids_of(run: SecureRun, names: Sequence[str]) -> Mapping[str, Tree]:
    values: Mapping[str, Tree] = {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }
    answer = await run.quietly(METADATA, 12, values)
    topics = at(answer, "topics")
    assert isinstance(topics, Sequence)
    return {str(at(topic, "name")): at(topic, "topic_id") for topic in topics}


CASES: Final = (using,)
