"""Differential cases: groups of the classic protocol, and the offsets of any group.

Leaves static members to `static_member_cases` and the newer protocol to `consumer_group_cases`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.answers import number
from tests.differential.run import Run, member_of
from tests.differential.wire import Tree

COMMIT: Final = ("OffsetCommit", 8)
OFFSETS: Final = ("OffsetFetch", 9)
FIND: Final = ("FindCoordinator", 10)
JOIN: Final = ("JoinGroup", 11)
HEARTBEAT: Final = ("Heartbeat", 12)
LEAVE: Final = ("LeaveGroup", 13)
SYNC: Final = ("SyncGroup", 14)
DESCRIBE: Final = ("DescribeGroups", 15)
LIST: Final = ("ListGroups", 16)
DELETE: Final = ("DeleteGroups", 42)
FORGET: Final = ("OffsetDelete", 47)
SESSION_MS: Final = 10_000
GROUP, TRANSACTION = 0, 1
SUBSCRIPTION: Final = b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0"
"""A consumer's subscription of version 1 to no topics."""


def join_values(
    group: str,
    member: str = "",
    *,
    session_ms: int = SESSION_MS,
    kind: str = "consumer",
    protocols: Sequence[str] = ("range",),
    instance: str | None = None,
) -> Mapping[str, Tree]:
    """Return a JoinGroup request."""
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": session_ms,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": kind,
        "protocols": [{"name": name, "metadata": SUBSCRIPTION} for name in protocols],
    }


def sync_values(
    group: str,
    generation: int,
    member: str,
    assigned: Sequence[str] = (),
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> Mapping[str, Tree]:
    """Return a SyncGroup request that assigns bytes to the named members."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": kind,
        "protocol_name": protocol,
        "assignments": [{"member_id": each, "assignment": b"mine"} for each in assigned],
    }


def beat_values(
    group: str, generation: int, member: str, instance: str | None = None
) -> Mapping[str, Tree]:
    """Return a Heartbeat request."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
    }


def commit_values(
    group: str,
    topic: str,
    offset: int,
    *,
    generation: int = -1,
    member: str = "",
    partition: int = 0,
    metadata: str | None = "",
    instance: str | None = None,
) -> Mapping[str, Tree]:
    """Return an OffsetCommit request for one partition."""
    part: Mapping[str, Tree] = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": instance,
        "topics": [{"name": topic, "partitions": [part]}],
    }


def offsets_values(group: str, topic: str, parts: Sequence[int] = (0,)) -> Mapping[str, Tree]:
    """Return an OffsetFetch request, of a version below 8."""
    topics: Tree = [{"name": topic, "partition_indexes": list(parts)}]
    return {"group_id": group, "topics": topics}


async def join_alone(run: Run, group: str, *, instance: str | None = None) -> tuple[str, int]:
    """Join as the only member and sync, without recording it; return member id and generation."""
    first = await run.quietly(JOIN, 5, join_values(group, instance=instance))
    member = member_of(first)
    if instance is None:
        first = await run.quietly(JOIN, 5, join_values(group, member))
    generation = number(first, "generation_id")
    values = sync_values(group, generation, member, [member], instance=instance)
    await run.quietly(SYNC, 3, values)
    return member, generation


async def joining(run: Run) -> None:
    """JoinGroup, valid and invalid; two members and a rebalance between them."""
    group = run.name("joined")

    async def join(name: str, client: str = "", version: int = 5, **options: str) -> Tree:
        values = join_values(group, **options)  # type: ignore[arg-type]
        return await run.ask(f"join/{name}", JOIN, version, values, client=client)

    for name, session in {"too short": 5, "too long": 10**9, "negative": -1}.items():
        values = join_values(group, session_ms=session)
        await run.ask(f"join/session timeout {name}", JOIN, 5, values)
    await run.ask("join/empty group id", JOIN, 5, join_values(""))
    await run.ask("join/no protocols", JOIN, 5, join_values(group, protocols=()))
    await run.ask("join/empty protocol type", JOIN, 5, join_values(group, kind=""))
    await join("unknown member", member="no-member")
    first = member_of(await join("needs a member id"))
    joined = await join("alone", member=first)
    generation = number(joined, "generation_id")
    early = beat_values(group, generation, first)
    await run.ask("join/heartbeat before sync", HEARTBEAT, 3, early)
    await run.ask(
        "join/sync, wrong generation", SYNC, 3, sync_values(group, generation + 1, first, [first])
    )
    await run.ask("join/sync, unknown member", SYNC, 3, sync_values(group, generation, "no-member"))
    wrong = sync_values(group, generation, first, [first], protocol="roundrobin")
    await run.ask("join/sync, wrong protocol", SYNC, 5, wrong)
    wrong = sync_values(group, generation, first, [first], kind="connect")
    await run.ask("join/sync, wrong protocol type", SYNC, 5, wrong)
    await run.ask("join/sync", SYNC, 5, sync_values(group, generation, first, [first]))
    await run.ask("join/sync again", SYNC, 5, sync_values(group, generation, first, [first]))
    await run.ask(
        "join/other protocol type", JOIN, 5, join_values(group, kind="connect"), client="other"
    )
    await run.ask(
        "join/no common protocol",
        JOIN,
        5,
        join_values(group, protocols=("sticky",)),
        client="other",
    )
    second = member_of(await join("second needs a member id", "second"))
    both = asyncio.create_task(join("second", "second", member=second))
    await wait_for_rebalance(run, group, generation, first)
    await run.ask(
        "join/heartbeat in rebalance", HEARTBEAT, 3, beat_values(group, generation, first)
    )
    late = commit_values(group, run.name("none"), 1, generation=generation, member="no-member")
    await run.ask("join/commit in rebalance, unknown member", COMMIT, 6, late)
    joined = await join("again", member=first)
    await both
    generation = number(joined, "generation_id")
    waiting = asyncio.create_task(
        run.ask(
            "join/second's sync", SYNC, 3, sync_values(group, generation, second), client="second"
        )
    )
    leading = sync_values(group, generation, first, [first, second])
    await run.ask("join/leader's sync", SYNC, 3, leading)
    await waiting
    await run.ask("join/described", DESCRIBE, 4, {"groups": [group]}, without=["members"])
    await run.ask("join/second leaves", LEAVE, 1, {"group_id": group, "member_id": second})
    await run.ask(
        "join/heartbeat after it left", HEARTBEAT, 3, beat_values(group, generation, first)
    )


async def wait_for_rebalance(run: Run, group: str, generation: int, member: str) -> None:
    """Wait until a member is notified that others join."""
    for _ in range(100):
        answer = await run.quietly(HEARTBEAT, 3, beat_values(group, generation, member))
        if number(answer, "error_code") != 0:
            return
        await asyncio.sleep(0.05)


async def living(run: Run) -> None:
    """Heartbeats, commits and look-ups of a member; states; leaving; deleting."""
    group, topic = run.name("lived"), await run.topic("group-topic", partitions=2)
    member, generation = await join_alone(run, group)

    async def beat(name: str, generation: int, member: str, of: str = group) -> None:
        await run.ask(f"heartbeat/{name}", HEARTBEAT, 3, beat_values(of, generation, member))

    await beat("right", generation, member)
    await beat("older generation", generation - 1, member)
    await beat("newer generation", generation + 1, member)
    await beat("unknown member", generation, "no-member")
    await beat("unknown group", 1, member, run.name("absent"))
    await beat("empty group id", 1, member, "")

    async def commit(name: str, offset: int, version: int = 6, **options: int | str) -> None:
        given = {"generation": generation, "member": member, **options}
        values = commit_values(group, topic, offset, **given)  # type: ignore[arg-type]
        await run.ask(f"commit/{name}", COMMIT, version, values)

    await commit("right", 3)
    await commit("older generation", 4, generation=generation - 1)
    await commit("unknown member", 4, member="no-member")
    await commit("no member, active group", 4, generation=-1, member="")
    await commit("unknown partition", 4, partition=9)
    await commit("metadata", 5, metadata="noted")
    await commit("metadata too large", 6, metadata="x" * 5000)
    await commit("negative offset", -5)
    absent = commit_values(group, run.name("absent"), 1, generation=generation, member=member)
    await run.ask("commit/unknown topic", COMMIT, 6, absent)
    await run.ask("offsets/of a member", OFFSETS, 5, offsets_values(group, topic, (0, 1)))
    await run.ask("offsets/all of a group", OFFSETS, 5, {"group_id": group, "topics": None})
    await ending(run, group, topic, member)
    await beat("after leaving", generation, member)


async def ending(run: Run, group: str, topic: str, member: str) -> None:
    """Leave a group, and delete it with its offsets."""
    await run.ask("group/described", DESCRIBE, 4, {"groups": [group]}, without=["members"])
    await run.ask("group/delete a full one", DELETE, 1, {"groups_names": [group]})
    await run.ask("group/leave, unknown member", LEAVE, 1, {"group_id": group, "member_id": "no"})
    many: Tree = [{"member_id": "no-member"}, {"member_id": member}]
    await run.ask("group/leave, known and unknown", LEAVE, 4, {"group_id": group, "members": many})
    await run.ask("group/leave again", LEAVE, 1, {"group_id": group, "member_id": member})
    await run.ask("group/described when empty", DESCRIBE, 4, {"groups": [group]})
    await run.ask("offsets/of an empty group", OFFSETS, 5, offsets_values(group, topic))
    forgotten: Tree = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    await run.ask("group/forget", FORGET, 0, {"group_id": group, "topics": forgotten})
    await run.ask("offsets/forgotten", OFFSETS, 5, offsets_values(group, topic))
    await run.ask("group/delete", DELETE, 1, {"groups_names": [group]})
    await run.ask("group/delete again", DELETE, 1, {"groups_names": [group]})
    await run.ask("group/delete, empty id", DELETE, 1, {"groups_names": [""]})
    await run.ask("group/described when deleted", DESCRIBE, 4, {"groups": [group]})
    await run.ask("group/described when deleted, 6", DESCRIBE, 6, {"groups": [group]})
    gone: Mapping[str, Tree] = {"group_id": group, "topics": forgotten}
    await run.ask("group/forget, unknown group", FORGET, 0, gone)


async def without_members(run: Run) -> None:
    """Offsets of consumers that assign to themselves."""
    group, topic = run.name("alone"), await run.topic("alone-topic")
    commit = commit_values(group, topic, 7, metadata="m")
    for version in range(2, 10):
        await run.ask(f"version/OffsetCommit {version}", COMMIT, version, commit)
    for version in range(1, 8):
        values = offsets_values(group, topic)
        await run.ask(f"version/OffsetFetch {version}", OFFSETS, version, values)
    topics: Tree = [{"name": topic, "partition_indexes": [0, 5]}]
    for version in (8, 9):
        groups: Tree = [{"group_id": group, "topics": topics}]
        await run.ask(f"version/OffsetFetch {version}", OFFSETS, version, {"groups": groups})
    many: Tree = [{"group_id": group, "topics": None}, {"group_id": run.name("absent")}]
    await run.ask("offsets/two groups", OFFSETS, 8, {"groups": many})
    lone = commit_values(group, topic, 8, generation=4, member="somebody")
    await run.ask("commit/member of a group without members", COMMIT, 6, lone)
    without_member = commit_values(group, topic, 8, generation=4, member="")
    await run.ask("commit/generation without member", COMMIT, 6, without_member)
    await run.ask("commit/empty group id", COMMIT, 6, commit_values("", topic, 1))
    await run.ask("offsets/empty group id", OFFSETS, 5, offsets_values("", topic))
    await run.quietly(DELETE, 1, {"groups_names": [""]})
    await run.ask("offsets/unknown group", OFFSETS, 5, offsets_values(run.name("absent"), topic))
    await run.ask("alone/described", DESCRIBE, 4, {"groups": [group]})
    listing: Mapping[str, Tree] = {"states_filter": ["Empty"]}
    listed = await run.quietly(LIST, 4, listing)
    run.note_names("alone/listed", listed, "groups", "group_id")


async def versions(run: Run) -> None:
    """Send valid requests in every version, and to coordinators of every kind."""
    for version in range(10):
        group = run.name(f"join-{version}")
        first = await run.ask(f"version/JoinGroup {version}", JOIN, version, join_values(group))
        member = member_of(first)
        if number(first, "error_code") != 0:
            first = await run.quietly(JOIN, version, join_values(group, member))
        sync = min(version, 5)
        generation = number(first, "generation_id")
        values = sync_values(group, generation, member, [member])
        name = f"version/SyncGroup {sync} after JoinGroup {version}"
        await run.ask(name, SYNC, sync, values)
        beat = min(version, 4)
        name = f"version/Heartbeat {beat} after JoinGroup {version}"
        await run.ask(name, HEARTBEAT, beat, beat_values(group, generation, member))
        leave = min(version, 5)
        one: Mapping[str, Tree] = {"group_id": group, "member_id": member}
        several: Mapping[str, Tree] = {"group_id": group, "members": [{"member_id": member}]}
        name = f"version/LeaveGroup {leave} after JoinGroup {version}"
        await run.ask(name, LEAVE, leave, several if leave > 2 else one)
    for version in range(7):
        described: Mapping[str, Tree] = {"groups": [run.name("join-0")]}
        await run.ask(f"version/DescribeGroups {version}", DESCRIBE, version, described)
    for version in range(6):
        listed = await run.quietly(LIST, version, {})
        run.note_names(f"version/ListGroups {version}", listed, "groups", "group_id")
    for version in range(3):
        deleted: Mapping[str, Tree] = {"groups_names": [run.name(f"join-{version}")]}
        await run.ask(f"version/DeleteGroups {version}", DELETE, version, deleted)
    for version in range(7):
        key = run.name("found")
        one = {"key": key, "key_type": GROUP, "coordinator_keys": [key]}
        await find(run, f"version/FindCoordinator {version}", version, one)
    for name, kind in {"transaction": TRANSACTION, "unknown": 9}.items():
        values = {"key": run.name("found"), "key_type": kind}
        await find(run, f"coordinator/{name}", 3, values)
    await find(run, "coordinator/empty group id", 3, {"key": "", "key_type": GROUP})
    await find(run, "coordinator/empty transactional id", 3, {"key": "", "key_type": TRANSACTION})


async def find(run: Run, name: str, version: int, values: Mapping[str, Tree]) -> None:
    """Request a coordinator: a cluster makes its internal topics at the first request."""
    await run.ask(name, FIND, version, values)


CASES: Final = (joining, living, without_members, versions)
