"""A request of a transaction is held up on its way, and arrives during the next transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.calls import Call, Message, Values, only
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import whole_broker
from tests.unit.broker_layer.test_whole_broker import begin_producing

TOPIC = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": []}
CREATE = Call(ApiKey.CREATE_TOPICS, {"topics": [{**TOPIC, "configs": []}], "timeout_ms": 5_000})
DESCRIBE = Call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]})

WAITING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def connected(beside: Client) -> Client:
    """Return a further connection to the broker of a client."""
    host, port = beside.writer.get_extra_info("peername")
    return Client(*await asyncio.open_connection(host, port))


def code_in(answer: Message) -> ErrorCode:
    """Return the code of an answer, or of the one partition in it."""
    rows = getattr(answer, "results_by_topic_v3_and_below", None)
    if rows:
        return ErrorCode(only(only(rows).results_by_partition).partition_error_code)
    if topics := getattr(answer, "topics", None):
        return ErrorCode(only(only(topics).partitions).error_code)
    return ErrorCode(answer.error_code)


async def do(client: Client, call: Call) -> None:
    """Send a request until the coordinators can serve it."""
    while True:
        code = code_in(await call.ask(client))
        if code is ErrorCode.NONE:
            return
        assert code in WAITING
        await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Calls:
    """The requests of one transactional producer, which writes one partition and has one group."""

    identity: Values

    @property
    def add(self) -> Call:
        fields = {**self.identity, "topics": [{"name": "a", "partitions": [0]}]}
        claim = {f"v3_and_below_{name}": value for name, value in fields.items()}
        return Call(ApiKey.ADD_PARTITIONS_TO_TXN, claim)

    @property
    def add_offsets(self) -> Call:
        return Call(ApiKey.ADD_OFFSETS_TO_TXN, {**self.identity, "group_id": "g"})

    @property
    def commit(self) -> Call:
        return Call(ApiKey.END_TXN, {**self.identity, "committed": True})

    def offset(self, offset: int) -> Call:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": "a", "partitions": [row]}]
        fields = {"group_id": "g", "generation_id": -1, "member_id": "", "topics": topics}
        return Call(ApiKey.TXN_OFFSET_COMMIT, {**self.identity, **fields})


@asynccontextmanager
async def producing() -> AsyncIterator[tuple[Client, Client, Calls]]:
    """Yield an older and a newer connection of a producer, and its requests."""
    async with whole_broker() as old:
        await CREATE.ask(old)
        begun = await begin_producing(old, "t")
        identity = begun.producer_id, begun.producer_epoch
        fields = dict(zip(("producer_id", "producer_epoch"), identity, strict=True))
        new = await connected(old)
        try:
            yield old, new, Calls({**fields, "transactional_id": "t"})
        finally:
            new.writer.close()


async def test_a_late_end_does_not_end_the_next_transaction() -> None:
    async with producing() as (old, new, calls):
        await do(old, calls.add)
        await do(new, calls.commit)  # what `old` sent is under way
        await do(new, calls.add)
        calls.commit.send(old)
        assert await old.is_closed()
        (state,) = (await DESCRIBE.ask(new)).transaction_states
        assert state.transaction_state == "Ongoing"
        newest = await connected(new)
        await do(newest, calls.commit)
        newest.writer.close()


async def test_late_offsets_do_not_replace_those_of_the_next_transaction() -> None:
    async with producing() as (old, new, calls):
        await do(old, calls.add_offsets)
        await do(old, calls.offset(5))
        await do(new, calls.commit)
        await do(new, calls.add_offsets)
        await do(new, calls.offset(9))
        calls.offset(5).send(old)
        assert await old.is_closed()
        await do(new, calls.commit)
        assert await committed(new) == 9


async def committed(client: Client) -> int:
    """Return the group's offset, as OffsetFetch shows it when no transaction can change it."""
    topics = [{"name": "a", "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    fields = {"groups": [group], "require_stable": True}
    while True:
        answer = await Call(ApiKey.OFFSET_FETCH, fields).ask(client)
        row = only(only(only(answer.groups).topics).partitions)
        if row.error_code == ErrorCode.NONE:
            return int(row.committed_offset)
        assert row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        await asyncio.sleep(0.02)
