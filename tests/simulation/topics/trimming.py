"""Client that deletes records, so that logs begin at offsets below their ends.

Leaves judging later reads to `history`.

Invariant checked: a log begins at the requested offset, or later (not deleted).
"""

import asyncio
import random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import DeleteRecordsRequest, DeleteRecordsResponse
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.kafka_client import KafkaClient, Refused, Unanswered
from tests.simulation.topics.reading import EARLIEST, LATEST, LogReader

DELETE_RECORDS_VERSION: Final = 1
TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = 3.0
RETREAT_MAX: Final = 6
"""Maximum number of records left, so that starts come near to ends."""


async def trim(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Delete records of all partitions at times, until the run is over."""
    cluster = node.topics
    readers = [
        LogReader(cluster.history, client, node.incarnation, place, committed=False)
        for place in cluster.partitions()
    ]
    while not cluster.is_over:
        reader = rng.choice(readers)
        try:
            end = await reader.ask_offset(LATEST)
            if end:
                await _trim(node, client, reader, max(0, end - rng.randint(0, RETREAT_MAX)))
            await reader.ask_offset(EARLIEST)
        except (Unanswered, Refused) as error:
            cluster.model.note("trimmer", str(error))
            client.doubt_leader(*reader.place)
            await client.pause()
        await asyncio.sleep(PAUSE_S * rng.random())


async def _trim(node: KafkaNode, client: KafkaClient, reader: LogReader, offset: int) -> None:
    """Make a log begin at an offset. Raises Unanswered, Refused."""
    history, place = node.topics.history, reader.place
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    row = kind.DeleteRecordsPartition(partition_index=place[1], offset=offset)
    request = DeleteRecordsRequest(
        topics=[kind(name=place[0], partitions=[row])], timeout_ms=TIMEOUT_MS
    )
    broker = await client.leader_of(*place)
    leader = client.leader(broker)
    before = history.known(place, leader)
    response = await client.ask(broker, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request)
    assert isinstance(response, DeleteRecordsResponse)
    answer = response.topics[0].partitions[0]
    code, start = ErrorCode(answer.error_code), int(answer.low_watermark)
    node.topics.model.note("deleted", f"{place} below {offset}: {code.name} {start}")
    if code is not ErrorCode.NONE:
        raise Refused(code)
    if start < offset:
        history.report("not deleted", place, f"it begins at {start}, not at {offset}")
    history.note_range("DeleteRecords", place, leader, before, None, start)
