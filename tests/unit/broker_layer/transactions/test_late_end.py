"""A request of a transaction is held up on its way, and arrives during the next transaction."""

import asyncio

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.calls import Call, only
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import whole_broker
from tests.unit.broker_layer.test_whole_broker import begin_producing

TOPIC = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": []}
CREATE = Call(ApiKey.CREATE_TOPICS, {"topics": [{**TOPIC, "configs": []}], "timeout_ms": 5_000})
DESCRIBE = Call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]})


async def connected(beside: Client) -> Client:
    """Return a further connection to the broker of a client."""
    host, port = beside.writer.get_extra_info("peername")
    return Client(*await asyncio.open_connection(host, port))


async def retried(client: Client, call: Call) -> ErrorCode:
    """Send a request until the transaction before is complete; return the code of its answer."""
    while True:
        answer = await call.ask(client)
        rows = getattr(answer, "results_by_topic_v3_and_below", None)
        code = only(only(rows).results_by_partition).partition_error_code if rows else 0
        code = code or answer.error_code
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return ErrorCode(code)
        await asyncio.sleep(0.02)


async def test_a_late_end_does_not_end_the_next_transaction() -> None:
    async with whole_broker() as old:
        await CREATE.ask(old)
        begun = await begin_producing(old, "t")
        who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        partitions = [{"name": "a", "partitions": [0]}]
        fields = {**who, "transactional_id": "t", "topics": partitions}
        claim = {f"v3_and_below_{name}": value for name, value in fields.items()}
        add = Call(ApiKey.ADD_PARTITIONS_TO_TXN, claim)
        commit = Call(ApiKey.END_TXN, {**who, "transactional_id": "t", "committed": True})
        new = await connected(old)
        try:
            assert await retried(old, add) == ErrorCode.NONE
            assert await retried(new, commit) == ErrorCode.NONE  # what `old` sent is under way
            assert await retried(new, add) == ErrorCode.NONE
            commit.send(old)
            assert await old.is_closed()
            (state,) = (await DESCRIBE.ask(new)).transaction_states
            assert state.transaction_state == "Ongoing"
            newest = await connected(new)
            assert await retried(newest, commit) == ErrorCode.NONE
            newest.writer.close()
        finally:
            new.writer.close()
