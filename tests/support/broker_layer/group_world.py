"""Group coordinator with a log in memory; its handlers are called through encoded requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from random import Random
from typing import TypeVar

from kafka.protocol.api_message import ApiMessage

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.handlers import handlers
from broker_layer.groups.offset_handlers import CheckOffsets
from broker_layer.groups.values import GroupsConfig
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.security.authorizer import Rights
from metadata.callbacks import Callbacks

WALL_START_MS = 1_700_000_000_000
ResponseT = TypeVar("ResponseT")


class MemoryTopics:
    """Topics in a dict."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = {CONSUMER_OFFSETS: 1, **counts}
        self.ids = {name: name.encode().ljust(16, b".") for name in self.counts}
        self.callbacks = Callbacks[()]()
        self.is_complete = True

    def topic_id_of(self, name: str) -> bytes | None:
        return self.ids.get(name)

    def topic_name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def topic_names(self) -> Iterable[str]:
        return list(self.counts)

    def on_topics_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self.callbacks.add(callback)

    def put(self, name: str, count: int, topic_id: bytes | None = None) -> None:
        self.counts[name] = count
        self.ids[name] = topic_id or name.encode().ljust(16, b".")
        self.callbacks.notify()

    def drop(self, name: str) -> None:
        del self.counts[name]
        del self.ids[name]
        self.callbacks.notify()


class MemoryLog:
    """A log whose records survive it; appends become durable at `release`."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records
        self.snapshot: Callable[[], Iterable[bytes]] = tuple
        self.on_failed: Callable[[], None] = lambda: None
        self.leader_epoch = 1
        self.lead_refusal: TopicError | None = None
        self.is_held = False
        self.refusal: TopicError | None = None
        self.waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self.closed = 0

    async def open(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> "MemoryLog":
        for record in list(self.records):
            load(record)
        self.snapshot, self.on_failed = snapshot, on_failed
        return self

    async def confirm_lead(self) -> None:
        if self.lead_refusal is not None:
            raise self.lead_refusal

    def append(self, record: bytes) -> "asyncio.Future[None]":
        if self.refusal is not None:
            raise self.refusal
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((record, future))
        if not self.is_held:
            asyncio.get_running_loop().call_soon(self.release)
        return future

    def release(self) -> None:
        for record, future in self.waiting:
            self.records.append(record)
            if not future.done():
                future.set_result(None)
        self.waiting.clear()

    def fail(self) -> None:
        self.refusal = TopicError(ErrorCode.NOT_COORDINATOR, "lost")
        for _, future in self.waiting:
            future.set_exception(self.refusal)
            future.exception()
        self.waiting.clear()
        self.on_failed()

    async def aclose(self) -> None:
        self.closed += 1
        self.release()


class World:
    """One coordinator of one partition."""

    def __init__(
        self,
        config: GroupsConfig,
        topics: MemoryTopics,
        records: list[bytes],
        check_offsets: CheckOffsets | None = None,
    ) -> None:
        self.wall_ms = WALL_START_MS
        self.topics = topics
        self.records = records
        self.log = MemoryLog(records)
        self.coordinator = GroupCoordinator(config, topics, Random(7), lambda: self.wall_ms)
        self.handlers = handlers(self.coordinator, check_offsets)

    async def load(self) -> None:
        await self.coordinator.load(0, self.log.open)

    async def call(
        self,
        request: ApiMessage,
        kind: type[ResponseT],
        *,
        version: int | None = None,
        client_id: str = "tester",
        rights: Rights | None = None,
    ) -> ResponseT:
        used = request.max_version if version is None else version
        context = RequestContext(used, client_id, "/127.0.0.1", "PLAIN", 1, rights=rights)
        body = bytes(request.encode(version=used))
        decoded = type(request).decode(body, version=used)
        answer = await self.handlers[request.API_KEY](decoded, context)
        assert isinstance(answer, ApiMessage)
        body = bytes(answer.encode(version=used))
        response = type(answer).decode(body, version=used)
        assert isinstance(response, kind)
        return response

    async def turn(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def open_world(
    *,
    config: GroupsConfig | None = None,
    topics: dict[str, int] | None = None,
    records: list[bytes] | None = None,
    check_offsets: CheckOffsets | None = None,
) -> AsyncIterator[World]:
    world = World(
        config or GroupsConfig(group_initial_rebalance_delay_ms=0),
        MemoryTopics(topics or {"orders": 4, "other": 2}),
        [] if records is None else records,
        check_offsets,
    )
    await world.load()
    try:
        yield world
    finally:
        await world.coordinator.aclose()


def errors_of(topics: Iterable[object]) -> Iterator[int]:
    for topic in topics:
        for partition in topic.partitions:  # type: ignore[attr-defined]
            yield partition.error_code
