"""Differential cases: static members (KIP-345)."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.differential.answers import at, number
from tests.differential.group_cases import (
    COMMIT,
    DESCRIBE,
    HEARTBEAT,
    JOIN,
    LEAVE,
    SYNC,
    beat_values,
    commit_values,
    join_values,
    sync_values,
)
from tests.differential.run import PAUSE_S, Run, member_of
from tests.differential.wire import Tree
from tests.until import WAIT_S


async def static_members(run: Run) -> None:
    """Replace, fence and remove a static member."""
    group, topic = run.name("static"), await run.topic("static-topic")
    joining = join_values(group, instance="first")
    joined = await run.ask("static/join", JOIN, 5, joining)
    old, generation = member_of(joined), number(joined, "generation_id")
    values = sync_values(group, generation, old, [old], instance="first")
    await run.ask("static/sync", SYNC, 3, values)
    values = beat_values(group, generation, old, "first")
    await run.ask("static/heartbeat", HEARTBEAT, 3, values)
    replaced = await run.ask("static/join again", JOIN, 5, joining, client="replacement")
    new = member_of(replaced)
    run.answers["static/member id changes"] = old != new
    run.answers["static/generation stays"] = number(replaced, "generation_id") == generation
    for name, member in {"replaced": old, "replacing": new, "unknown": "no-member"}.items():
        values = beat_values(group, generation, member, "first")
        await run.ask(f"static/heartbeat of the {name}", HEARTBEAT, 3, values)
        values = commit_values(
            group, topic, 4, generation=generation, member=member, instance="first"
        )
        await run.ask(f"static/commit of the {name}", COMMIT, 7, values)
        values = sync_values(group, generation, member, instance="first")
        await run.ask(f"static/sync of the {name}", SYNC, 3, values)
    values = beat_values(group, generation, new, "second")
    await run.ask("static/heartbeat of an unknown instance", HEARTBEAT, 3, values)
    rejoin = join_values(group, old, instance="first")
    await run.ask("static/join of the replaced", JOIN, 5, rejoin)
    unknown = join_values(group, "no-member", instance="second")
    await run.ask("static/join of an unknown member", JOIN, 5, unknown)
    await run.ask("static/described", DESCRIBE, 4, {"groups": [group]})
    await _leave(run, group)


def leave_values(group: str, member: str, instance: str | None) -> Mapping[str, Tree]:
    """Return a LeaveGroup request of version 3 or later for one member."""
    return {
        "group_id": group,
        "members": [{"member_id": member, "group_instance_id": instance}],
    }


async def _leave(run: Run, group: str) -> None:
    async def leave(name: str, member: str, instance: str | None) -> None:
        await run.ask(f"static/leave, {name}", LEAVE, 4, leave_values(group, member, instance))

    await leave("unknown instance", "", "second")
    await leave("wrong member id", "no-member", "first")
    await leave("by instance", "", "first")
    await leave("again", "", "first")


async def expiring(run: Run) -> None:
    """Send no more heartbeats: after its session timeout a member is removed."""
    group = run.name("expiring")
    first = await run.quietly(JOIN, 5, join_values(group, session_ms=6000))
    member = member_of(first)
    joined = await run.quietly(JOIN, 5, join_values(group, member, session_ms=6000))
    generation = number(joined, "generation_id")
    await run.quietly(SYNC, 3, sync_values(group, generation, member, [member]))
    await _until_empty(run, group)
    values = beat_values(group, generation, member)
    await run.ask("expiry/heartbeat after it", HEARTBEAT, 3, values)
    await run.ask("expiry/described after it", DESCRIBE, 4, {"groups": [group]})


async def _until_empty(run: Run, group: str) -> None:
    """Wait until a group has no member: a heartbeat would keep it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await run.quietly(DESCRIBE, 4, {"groups": [group]})
            if not at(answer, "groups", 0, "members"):
                return
            await asyncio.sleep(PAUSE_S)


CASES: Final = (static_members, expiring)
