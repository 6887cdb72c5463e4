"""Answers to batches that were refused because of single records."""

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordError
from broker_layer.server.produce import TEXT_CHARACTERS_MAX
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import batch, serving


async def test_the_answer_names_the_refused_records() -> None:
    refusal = RecordsRefusedError(ErrorCode.INVALID_RECORD, "some", [RecordError(1, "no key")])
    topics = MemoryTopics({("orders", 0): MemoryLog(refusal=refusal), ("orders", 1): MemoryLog()})
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one", b"two"), 1: batch(b"three")}})
        refused, accepted = (await client.produced()).responses[0].partition_responses
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_RECORD, "some")
    (error,) = refused.record_errors
    assert (error.batch_index, error.batch_index_error_message) == (1, "no key")
    assert (accepted.error_code, accepted.record_errors) == (ErrorCode.NONE, [])


async def test_the_text_of_an_error_is_limited() -> None:
    refusal = TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a long name " * 1_000)
    topics = MemoryTopics({("orders", number): MemoryLog(refusal=refusal) for number in range(2)})
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"x"), 1: batch(b"x")}})
        [topic] = (await client.produced()).responses
    texts = [response.error_message for response in topic.partition_responses]
    assert texts == [refusal.text[:TEXT_CHARACTERS_MAX]] * 2
