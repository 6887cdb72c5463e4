"""What a request changes, the next one on its connection sees, without a wait for the answer.

One table has each API that changes something with the APIs that show it. Apache Kafka serves one
request of a connection at a time, so clients rely on it (`async` calls of admin clients and
consumers). ElectLeaders and AlterPartitionReassignments change nothing that one broker could show.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.calls import Call, Message, only
from tests.support.broker_layer.served_broker import (
    Ask,
    Client,
    Wanted,
    batch,
    fetch_body,
    produce_body,
)
from tests.support.broker_layer.whole_broker import OPTIONS, whole_broker
from tests.until import WAIT_S

TOPIC, RETENTION = 2, "retention.ms"
PRODUCER = "producer_id", "producer_epoch"


class Show(NamedTuple):
    """A request, what its answer shows, and what it is to show after the change."""

    call: Call
    seen: Callable[[Message], object]
    wanted: object


def part(answer: Message) -> Message:
    """Return the one partition of the one topic of an answer."""
    return only(only(getattr(answer, "topics", None) or answer.responses).partitions)


# -- calls ---------------------------------------------------------------------------------------


def create(name: str) -> Call:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    topics = [{**topic, "assignments": [], "configs": []}]
    return Call(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout_ms": 5_000})


def delete(name: str) -> Call:
    topics = [{"name": name}]
    return Call(ApiKey.DELETE_TOPICS, {"topics": topics, "timeout_ms": 5_000})


def grow(name: str) -> Call:
    topics = [{"name": name, "count": 3, "assignments": None}]
    return Call(ApiKey.CREATE_PARTITIONS, {"topics": topics, "timeout_ms": 5_000})


def step(name: str, value: int) -> Call:
    configs = [{"name": RETENTION, "config_operation": 0, "value": str(value)}]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    return Call(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources})


def alter(name: str) -> Call:
    configs = [{"name": RETENTION, "value": "70000"}]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    return Call(ApiKey.ALTER_CONFIGS, {"resources": resources})


def produce(name: str, value: bytes = b"one") -> Call:
    return Call(ApiKey.PRODUCE, produce_body(9, {name: {0: batch(value)}}))


def trim(name: str) -> Call:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}]
    return Call(ApiKey.DELETE_RECORDS, {"topics": topics, "timeout_ms": 5_000})


def offset(name: str, time: int) -> Call:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": time}]}]
    return Call(ApiKey.LIST_OFFSETS, {"topics": topics, "isolation_level": 0})


def epoch_end(name: str) -> Call:
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    topics = [{"topic": name, "partitions": [row]}]
    return Call(ApiKey.OFFSET_FOR_LEADER_EPOCH, {"topics": topics})


def fetch(name: str) -> Call:
    return Call(ApiKey.FETCH, fetch_body(12, Ask({name: {0: Wanted()}})))


def commit(name: str, committed: int = 5) -> Call:
    row = {"partition_index": 0, "committed_offset": committed, "committed_metadata": ""}
    fields = {"group_id": name, "generation_id_or_member_epoch": -1, "member_id": ""}
    return Call(
        ApiKey.OFFSET_COMMIT, {**fields, "topics": [{"name": "shared", "partitions": [row]}]}
    )


def committed(name: str, *, stable: bool = False) -> Call:
    topics = [{"name": "shared", "partition_indexes": [0]}]
    groups = [{"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics}]
    return Call(ApiKey.OFFSET_FETCH, {"groups": groups, "require_stable": stable})


def drop_offset(name: str) -> Call:
    topics = [{"name": "shared", "partitions": [{"partition_index": 0}]}]
    return Call(ApiKey.OFFSET_DELETE, {"group_id": name, "topics": topics})


def beat(name: str, epoch: int = 0) -> Call:
    fields = {"group_id": name, "member_id": "m", "member_epoch": epoch, "topic_partitions": []}
    fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["shared"]}
    return Call(ApiKey.CONSUMER_GROUP_HEARTBEAT, fields)


def begin(name: str) -> Call:
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    return Call(ApiKey.INIT_PRODUCER_ID, {**fields, "producer_id": -1, "producer_epoch": -1})


def describe_txn(name: str) -> Call:
    return Call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]})


# -- what answers show ---------------------------------------------------------------------------


def shows_topic(name: str, code: ErrorCode, count: int) -> list[Show]:
    def seen(answer: Message) -> object:
        topic = only(answer.topics)
        return topic.error_code, len(topic.partitions)

    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    few = {"topics": [{"name": name}], "response_partition_limit": 10, "cursor": None}
    return [
        Show(Call(ApiKey.METADATA, asked), seen, (code, count)),
        Show(Call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, few), seen, (code, count)),
    ]


def shows_configs(name: str, *wanted: object) -> Show:
    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": [RETENTION]}]

    def seen(answer: Message) -> object:
        result = only(answer.results)
        return (result.error_code, *(config.value for config in result.configs or ()))

    return Show(Call(ApiKey.DESCRIBE_CONFIGS, {"resources": resources}), seen, wanted)


def lists_topic(name: str, wanted: bool) -> Show:
    call = Call(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [TOPIC]})
    return Show(
        call, lambda a: name in [resource.resource_name for resource in a.config_resources], wanted
    )


def lists_group(name: str, wanted: bool) -> Show:
    call = Call(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
    return Show(call, lambda a: name in [group.group_id for group in a.groups], wanted)


def shows_committed(name: str, wanted: int, code: ErrorCode = ErrorCode.NONE) -> Show:
    def seen(answer: Message) -> object:
        row = only(only(only(answer.groups).topics).partitions)
        return row.error_code, row.committed_offset

    return Show(committed(name, stable=code != ErrorCode.NONE), seen, (code, wanted))


def shows_group(name: str, state: str) -> Show:
    call = Call(ApiKey.DESCRIBE_GROUPS, {"groups": [name]})
    return Show(call, lambda a: only(a.groups).group_state, state)


def shows_members(name: str, *wanted: str) -> Show:
    call = Call(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [name]})
    return Show(
        call, lambda a: tuple(member.member_id for member in only(a.groups).members), wanted
    )


def shows_state(name: str, *wanted: str) -> list[Show]:
    def listed(answer: Message) -> object:
        states = {row.transactional_id: row.transaction_state for row in answer.transaction_states}
        return states.get(name) in wanted

    listing = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    return [
        Show(
            describe_txn(name),
            lambda a: only(a.transaction_states).transaction_state in wanted,
            True,
        ),
        Show(Call(ApiKey.LIST_TRANSACTIONS, listing), listed, True),
    ]


def has_code(call: Call, code: ErrorCode = ErrorCode.NONE) -> Show:
    return Show(call, lambda a: a.error_code, code)


# -- the table -----------------------------------------------------------------------------------

Shows = list[Show]
Change = tuple[Sequence[Call], Call, Shows]
"""What is done before with its answers, the change, and what shows it; the name is the thing's."""


def of_topics(n: str) -> list[Change]:
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    has = create(n)
    return [
        (
            [],
            has,
            [*shows_topic(n, none, 1), shows_configs(n, none, "604800000"), lists_topic(n, True)],
        ),
        ([has], grow(n), shows_topic(n, none, 3)),
        (
            [has],
            delete(n),
            [
                *shows_topic(n, unknown, 0),
                shows_configs(n, unknown),
                lists_topic(n, False),
                Show(grow(n), lambda a: only(a.results).error_code, unknown),
                Show(
                    produce(n),
                    lambda a: only(only(a.responses).partition_responses).error_code,
                    unknown,
                ),
                Show(offset(n, -1), lambda a: part(a).error_code, unknown),
            ],
        ),
        ([has, step(n, 80_000)], step(n, 90_000), [shows_configs(n, none, "90000")]),
        ([has], alter(n), [shows_configs(n, none, "70000")]),
    ]


def of_records(n: str) -> list[Change]:
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    has = [create(n), offset(n, -1)]
    logs = {"topics": [{"topic": n, "partitions": [0]}]}

    def size(answer: Message) -> object:
        return only(only(only(answer.results).topics).partitions).partition_size > 0

    return [
        (
            has,
            produce(n),
            [
                Show(offset(n, -1), lambda a: part(a).offset, 1),
                Show(epoch_end(n), lambda a: part(a).end_offset, 1),
                Show(fetch(n), lambda a: part(a).high_watermark, 1),
                Show(trim(n), lambda a: part(a).low_watermark, 1),
                Show(Call(ApiKey.DESCRIBE_LOG_DIRS, logs), size, True),
            ],
        ),
        (
            [*has, produce(n)],
            trim(n),
            [
                Show(offset(n, -2), lambda a: part(a).offset, 1),
                Show(fetch(n), lambda a: part(a).error_code, out),
            ],
        ),
    ]


def of_groups(n: str) -> list[Change]:
    protocols = [{"name": "range", "metadata": b""}]
    fields = {"group_id": n, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    fields |= {"member_id": "", "protocol_type": "consumer", "protocols": protocols}
    fields |= {"group_instance_id": "i"}
    join = Call(ApiKey.JOIN_GROUP, fields)
    leave = Call(
        ApiKey.LEAVE_GROUP,
        {"group_id": n, "members": [{"member_id": "", "group_instance_id": "i"}]},
    )
    drop = Call(ApiKey.DELETE_GROUPS, {"groups_names": [n]})
    return [
        (
            [],
            commit(n),
            [
                shows_committed(n, 5),
                shows_group(n, "Empty"),
                lists_group(n, True),
                Show(drop, lambda a: only(a.results).error_code, ErrorCode.NONE),
                has_code(drop_offset(n)),
            ],
        ),
        ([commit(n, 3)], commit(n, 4), [shows_committed(n, 4)]),
        ([commit(n)], drop_offset(n), [shows_committed(n, -1)]),
        (
            [commit(n)],
            drop,
            [shows_committed(n, -1), shows_group(n, "Dead"), lists_group(n, False)],
        ),
        ([], join, [shows_group(n, "CompletingRebalance"), lists_group(n, True), has_code(leave)]),
        ([join], leave, [shows_group(n, "Empty")]),
        ([], beat(n), [shows_members(n, "m"), lists_group(n, True)]),
        ([beat(n)], beat(n, -1), [shows_members(n)]),
    ]


def of_clients(n: str) -> list[Change]:
    entity = [{"entity_type": "client-id", "entity_name": n}]
    ops = [{"key": "producer_byte_rate", "value": 5_000_000.0, "remove": False}]
    quota = Call(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": entity, "ops": ops}]})
    components = [{"entity_type": "client-id", "match_type": 0, "match": n}]
    quotas = Call(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": True})
    row = {"name": n, "mechanism": 1, "iterations": 4_096, "salt": b"0" * 16}
    added = {"deletions": [], "upsertions": [{**row, "salted_password": b"1" * 32}]}
    user = Call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, added)
    users = Call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": n}]})
    return [
        ([], quota, [Show(quotas, lambda a: len(a.entries), 1)]),
        ([], user, [Show(users, lambda a: only(a.results).error_code, ErrorCode.NONE)]),
    ]


def of_transactions(n: str, identity: tuple[int, int]) -> list[Change]:
    """Return the changes of a transactional id with this identity and no transaction."""
    who = {"transactional_id": n, **dict(zip(PRODUCER, identity, strict=True))}
    claim = {f"v3_and_below_{name}": value for name, value in who.items()}
    shared = [{"name": "shared", "partitions": [0]}]
    add = Call(ApiKey.ADD_PARTITIONS_TO_TXN, {**claim, "v3_and_below_topics": shared})
    add_offsets = Call(ApiKey.ADD_OFFSETS_TO_TXN, {**who, "group_id": n})
    row = {"partition_index": 0, "committed_offset": 6, "committed_metadata": ""}
    topics = [{"name": "shared", "partitions": [row]}]
    offsets = {**who, "group_id": n, "generation_id": -1, "member_id": "", "topics": topics}
    commit_offsets = Call(ApiKey.TXN_OFFSET_COMMIT, offsets)
    end = Call(ApiKey.END_TXN, {**who, "committed": True})
    data = batch(b"t", producer=Producer(*identity, 0), is_transactional=True)
    body = produce_body(9, {"shared": {0: data}}, transactional_id=n)
    ended = "PrepareCommit", "CompleteCommit"
    return [
        ([], begin(n), shows_state(n, "Empty")),
        (
            [],
            add,
            [
                *shows_state(n, "Ongoing"),
                has_code(end),
                Show(
                    Call(ApiKey.PRODUCE, body),
                    lambda a: only(only(a.responses).partition_responses).error_code,
                    ErrorCode.NONE,
                ),
            ],
        ),
        (
            [],
            add_offsets,
            [*shows_state(n, "Ongoing"), Show(commit_offsets, lambda a: part(a).error_code, 0)],
        ),
        (
            [add_offsets],
            commit_offsets,
            [shows_committed(n, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)],
        ),
        ([add], end, shows_state(n, *ended)),
    ]


# -- the test ------------------------------------------------------------------------------------


async def until_coordinated(client: Client) -> None:
    """Have the topics of the coordinators made, and wait until they are loaded."""
    await create("shared").ask(client)
    waits: list[tuple[Call, Callable[[Message], object]]] = [
        (Call(ApiKey.FIND_COORDINATOR, {"key_type": kind, "coordinator_keys": ["x"]}), found_code)
        for kind in (0, 1)
    ]
    waits.append((begin("x"), lambda a: a.error_code))
    waits.append((commit("x"), lambda a: part(a).error_code))
    async with asyncio.timeout(WAIT_S):
        for call, code in waits:
            while True:
                if not code(await call.ask(client)):
                    break
                await asyncio.sleep(0.05)


def found_code(answer: Message) -> object:
    return only(answer.coordinators).error_code


def places(changes: list[Change]) -> list[tuple[int, int]]:
    """Return the place of each change, with the place of each request that shows it."""
    return [
        (number, which)
        for number, (_, _, shows) in enumerate(changes)
        for which in range(len(shows))
    ]


async def unseen(client: Client, change: Change, which: int) -> str:
    """Do a change, and one of the requests that show it, in one piece. Return what the answer shows
    instead, or nothing.
    """
    before, call, shows = change
    for earlier in before:
        await earlier.ask(client)
    show = shows[which]
    call.send(client)
    show.call.send(client)
    changed = await call.answer(client)
    shown = show.seen(await show.call.answer(client))
    if shown == show.wanted:
        return ""
    pair = f"{show.call.key.shown} after {call.key.shown}"
    return f"{pair}: {shown}, not {show.wanted} ({changed})"


async def test_each_request_sees_what_the_one_before_it_changed() -> None:
    options = replace(OPTIONS, offsets_topic_partitions=1, transaction_topic_partitions=1)
    names = (f"n{number}" for number in itertools.count())
    missing: list[str] = []
    async with whole_broker(options) as client:
        await until_coordinated(client)
        for family in (of_topics, of_records, of_groups, of_clients):
            for number, which in places(family("")):
                missing.append(await unseen(client, family(next(names))[number], which))
        for number, which in places(of_transactions("", (0, 0))):
            name = next(names)
            begun = await begin(name).ask(client)
            changes = of_transactions(name, (begun.producer_id, begun.producer_epoch))
            missing.append(await unseen(client, changes[number], which))
    assert not list(filter(None, missing))
