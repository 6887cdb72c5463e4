"""Differential cases: whether the answers to clients above their quotas have a pause.

Leaves the quotas themselves to `quota_cases`. How long a pause is depends on times, and is not
compared.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.differential.answers import error_codes, number
from tests.differential.batches import Batch
from tests.differential.fetch_cases import fetch_values
from tests.differential.run import FETCH, METADATA, PRODUCE, produce_values, store
from tests.differential.security.acl_cases import ALL, CREATE, PREFIXED, TOPIC, binding, creation
from tests.differential.security.quota_cases import (
    CONSUMER,
    HIGH,
    MUTATIONS,
    PERCENTAGE,
    PRODUCER,
    USER,
    alter,
    entry,
    remove_all,
)
from tests.differential.security.rights_cases import KEPT_FOREVER
from tests.differential.security.secure_run import PASSWORD, SecureRun
from tests.differential.topic_cases import create_values, new_topic
from tests.differential.wire import Tree
from tests.until import WAIT_S

LOW: Final = 1_000.0
LARGE_BYTES: Final = 100_000
"""What one request moves, so much that any way to count exceeds the rate `LOW`."""
CREATE_TOPICS: Final = ("CreateTopics", 19)
MANY: Final = 20
"""Partitions of a topic, so many that any way to count exceeds a rate of changes of 0.5."""

REPEATED: Final = (("produce", "above"), ("fetch", "above"), ("work", "above"))


async def pausing(run: SecureRun) -> None:
    """Answers to clients within their quota and above it."""
    topic = await run.topic("paused", retention_ms=KEPT_FOREVER)
    large = Batch(values=[b"x" * LARGE_BYTES])
    await store(run, topic, large)
    quotas: Mapping[str, tuple[str, float]] = {
        "produce-within": (PRODUCER, HIGH),
        "produce-above": (PRODUCER, LOW),
        "fetch-within": (CONSUMER, HIGH),
        "fetch-above": (CONSUMER, LOW),
        "work-within": (PERCENTAGE, HIGH),
        "work-above": (PERCENTAGE, 1e-6),
        "change-within": (MUTATIONS, HIGH),
        "change-above": (MUTATIONS, 0.5),
        "change-older": (MUTATIONS, 0.5),
    }
    users = [run.name(short) for short in quotas]
    await run.add_users(users)
    rule = [
        binding(TOPIC, run.prefix, pattern=PREFIXED, principal=f"User:{user}", operation=ALL)
        for user in users
    ]
    await run.quietly(CREATE, 3, creation(*rule))
    entries = [
        entry([(USER, run.name(short))], {key: rate}) for short, (key, rate) in quotas.items()
    ]
    await alter(run, "to pause", *entries)
    await run.wait_spread()
    for short in quotas:
        await _note_pause(run, short, topic, large)
    await remove_all(run)


async def _note_pause(run: SecureRun, short: str, topic: str, large: Batch) -> None:
    """Record one answer. Each request has a connection, because brokers pause connections."""
    kind, _, which = short.partition("-")
    client = run.name(short)

    async def ask(api: tuple[str, int], version: int, values: Mapping[str, Tree]) -> Tree:
        wire = run.login_wire(client, PASSWORD)
        try:
            return await wire.ask(api[0], version, values)
        finally:
            wire.abort()

    async def note(
        name: str, api: tuple[str, int], version: int, values: Mapping[str, Tree]
    ) -> None:
        """Record an answer. Those above a quota that repeat without an effect wait for it: a busy
        broker learns of the quota late, and a clock of milliseconds sees no work in one request.
        """
        answer = await ask(api, version, values)
        end_s = asyncio.get_running_loop().time() + WAIT_S
        while (
            (kind, which) in REPEATED
            and not number(answer, "throttle_time_ms")
            and asyncio.get_running_loop().time() < end_s
        ):
            answer = await ask(api, version, values)
        paused = number(answer, "throttle_time_ms") > 0
        codes: list[int] = sorted(set(error_codes(answer)))
        run.answers[f"quota/{short}, {name}"] = {"is paused": paused, "codes": [*codes]}

    match kind:
        case "produce":
            await note("produce", PRODUCE, 9, produce_values(topic, large))
        case "fetch":
            await note("fetch", FETCH, 12, fetch_values([(topic, 0, 0)]))
        case "work":
            await note("metadata", METADATA, 9, {"topics": [{"name": topic}]})
        case _:
            version = 5 if which == "older" else 6
            for place in range(2):
                made = new_topic(run.name(f"{short}-{place}"), MANY)
                await note(f"create {place}", CREATE_TOPICS, version, create_values(made))


CASES: Final = (pausing,)
