"""One pass of the script over one broker, with the reduced answers by name.

Leaves the requests to the `*_cases` modules, connections to `wire` and reducing to `answers`.

Invariants: names of topics, groups and transactional ids have a prefix drawn for the run, so that a
broker can be used again. A request whose answer says "not yet" is repeated, and so is one that
only reads, until it has the answer that is expected; Apache Kafka's answers are recorded after a
fixed time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Final

from tests.differential.answers import KEPT, Json, at, error_codes, number, reduce, text
from tests.differential.batches import Batch
from tests.differential.wire import (
    ConnectionClosedError,
    NoAnswerError,
    Tree,
    Wire,
    bare_request,
)
from tests.until import WAIT_S

NOT_YET: Final = (5, 6, 14, 15, 16, 51)
"""No leader, not the leader, coordinator loading, absent or another, transaction still ending."""
PAUSE_S: Final = 0.1
SPREAD_S: Final = 1.0
READS: Final = (
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeConfigs",
    "DescribeUserScramCredentials",
)
"""Requests that show what was changed before, and can be repeated."""
LATEST: Final = -1
EARLIEST: Final = -2


class Run:
    """Sends requests to one broker."""

    kept: ClassVar = KEPT
    """Fields of answers whose values are compared."""

    def __init__(self, address: str, rng: Random) -> None:
        self.address = address
        self.prefix = f"d{rng.randbytes(4).hex()}-"
        self.answers: dict[str, Json] = {}
        self.not_advertised: list[str] = []
        self.versions: dict[int, tuple[int, int]] = {}
        self._wires: dict[str, Wire] = {}
        self._wanted: Mapping[str, Json] = {}

    def expect(self, answers: Mapping[str, Json]) -> None:
        """Repeat requests that only read until they have these answers, by name."""
        self._wanted = answers

    def name(self, short: str) -> str:
        """Return the name of a topic, a group or a transactional id in this run."""
        return self.prefix + short

    def wire(self, client: str = "") -> Wire:
        """Return the connection of one client."""
        if client not in self._wires:
            self._wires[client] = Wire(self.address)
        return self._wires[client]

    async def learn_versions(self) -> None:
        """Request the versions that the broker serves: `ask` leaves out the others."""
        answer = await self.wire().ask("ApiVersions", 0, {})
        assert isinstance(answer, Mapping)
        keys = answer["api_keys"]
        assert isinstance(keys, list)
        for place in range(len(keys)):
            key = number(answer, "api_keys", place, "api_key")
            least = number(answer, "api_keys", place, "min_version")
            self.versions[key] = (least, number(answer, "api_keys", place, "max_version"))

    async def wait_coordinators(self) -> None:
        """Wait until there are coordinators: a cluster makes their topics at the first request."""
        for kind in (0, 1):
            values: Mapping[str, Tree] = {"key": self.name("first"), "key_type": kind}
            await self.quietly(("FindCoordinator", 10), 3, values)

    async def wait_spread(self) -> None:
        """Wait until a change is known at every place that answers requests for it."""
        await asyncio.sleep(SPREAD_S)

    def serves(self, key: int, version: int) -> bool:
        """Return whether the broker says that it serves a version."""
        least, most = self.versions.get(key, (0, -1))
        return least <= version <= most

    async def ask(
        self,
        name: str,
        api: tuple[str, int],
        version: int,
        values: Mapping[str, Tree],
        *,
        client: str = "",
        is_patient: bool = True,
        without: Sequence[str] = (),
    ) -> Tree:
        """Send a request, record the answer under `name`, and return it complete."""
        api_name, key = api
        if not self.serves(key, version):
            self.not_advertised.append(f"{name}: {api_name} {version}")
            return None
        answer = await self.quietly(api, version, values, client=client, is_patient=is_patient)
        assert name not in self.answers, name
        self.answers[name] = reduce(answer, self.prefix, without, self.kept)
        if api_name in READS and name in self._wanted:
            end_s = asyncio.get_running_loop().time() + WAIT_S
            while self.answers[name] != self._wanted[name]:
                if asyncio.get_running_loop().time() > end_s:
                    self._wanted = {}  # one that never comes: the others are not waited for
                    break
                await asyncio.sleep(PAUSE_S)
                answer = await self.quietly(api, version, values, client=client)
                self.answers[name] = reduce(answer, self.prefix, without, self.kept)
        return answer

    async def quietly(
        self,
        api: tuple[str, int],
        version: int,
        values: Mapping[str, Tree],
        *,
        client: str = "",
        is_patient: bool = True,
    ) -> Tree:
        """Send a preparatory request without recording the answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while True:
            try:
                answer = await self.wire(client).ask(api[0], version, values)
            except ConnectionClosedError:
                return "connection closed"
            except NoAnswerError:
                return "no answer"
            waits = any(code in NOT_YET for code in error_codes(answer))
            if not is_patient or not waits or loop.time() > deadline:
                return answer
            await asyncio.sleep(PAUSE_S)

    async def send_bare(self, name: str, frame: bytes) -> None:
        """Send bytes that no schema can produce; record whether an answer comes."""
        wire = Wire(self.address)
        try:
            answer = await wire.exchange(frame)
            self.answers[name] = f"answered, error {int.from_bytes(answer[4:6], 'big')}"
        except ConnectionClosedError:
            self.answers[name] = "connection closed"
        except NoAnswerError:
            self.answers[name] = "no answer"
        finally:
            await wire.aclose()

    async def send_unserved(self, name: str, key: int, version: int) -> None:
        """Request a version, or a key, that may not be served."""
        await self.send_bare(name, bare_request(key, version))

    async def topic(self, short: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic and return its name once its partitions have leaders."""
        name = self.name(short)
        topic: Mapping[str, Tree] = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
        }
        values: Mapping[str, Tree] = {"topics": [topic], "timeout_ms": 20000}
        await self.quietly(("CreateTopics", 19), 5, values)
        await self.wait_ready(name, partitions)
        return name

    async def wait_ready(self, topic: str, partitions: int) -> None:
        """Wait until every partition reports its end."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        codes: set[int] = set()
        while loop.time() < deadline:
            answer = await self.offsets(topic, LATEST, range(partitions))
            codes = set(error_codes(answer))
            if codes == {0}:
                return
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError(f"{topic} has no leader: {sorted(codes)}")

    async def offsets(self, topic: str, timestamp: int, partitions: range = range(1)) -> Tree:
        """Send ListOffsets without recording the answer."""
        parts = [{"partition_index": n, "timestamp": timestamp} for n in partitions]
        topics: Tree = [{"name": topic, "partitions": parts}]
        values: Mapping[str, Tree] = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        return await self.quietly(("ListOffsets", 2), 4, values, is_patient=False)

    def note_names(self, name: str, answer: Tree, field: str, key: str) -> None:
        """Record which of this run's names are in a list that may contain others."""
        listed = at(answer, field)
        items = listed if isinstance(listed, Sequence) else []
        own = sorted(text(item, key) for item in items if text(item, key).startswith(self.prefix))
        self.answers[name] = [each.removeprefix(self.prefix) for each in own]

    async def note_end(self, name: str, topic: str) -> None:
        """Record where partition 0 of a topic starts and ends."""
        ends = []
        for timestamp in (EARLIEST, LATEST):
            answer = await self.offsets(topic, timestamp)
            ends.append(number(answer, "topics", 0, "partitions", 0, "offset"))
        self.answers[name] = {"start": ends[0], "end": ends[1]}

    async def leader_epoch(self, topic: str) -> int:
        """Return the leader epoch of partition 0."""
        answer = await self.offsets(topic, LATEST)
        return number(answer, "topics", 0, "partitions", 0, "leader_epoch")

    async def topic_id(self, topic: str) -> Tree:
        """Return a topic's id."""
        values: Mapping[str, Tree] = {
            "topics": [{"name": topic}],
            "allow_auto_topic_creation": False,
        }
        answer = await self.quietly(("Metadata", 3), 12, values)
        found = answer["topics"] if isinstance(answer, Mapping) else []
        assert isinstance(found, list)
        return found[0]["topic_id"] if found else None

    async def aclose(self) -> None:
        """Close every connection."""
        for wire in self._wires.values():
            await wire.aclose()


def produce_values(
    topic: Tree,
    data: bytes | Batch | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> Mapping[str, Tree]:
    """Return a Produce request for one partition; a topic that is no text is an id."""
    records = data.encode() if isinstance(data, Batch) else data
    named: Mapping[str, Tree] = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    parts: Tree = [{"index": partition, "records": records}]
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": 10000,
        "topic_data": [{**named, "partition_data": parts}],
    }


PRODUCE: Final = ("Produce", 0)
FETCH: Final = ("Fetch", 1)
LIST_OFFSETS: Final = ("ListOffsets", 2)
METADATA: Final = ("Metadata", 3)


async def produce(
    run: Run, name: str, topic: str, data: bytes | Batch | None, *, version: int = 9, acks: int = -1
) -> Tree:
    """Record the answer to a Produce request for partition 0."""
    return await run.ask(name, PRODUCE, version, produce_values(topic, data, acks=acks))


async def store(run: Run, topic: str, *batches: Batch, transactional_id: str | None = None) -> None:
    """Append batches to partition 0 without recording the answers."""
    for batch in batches:
        values = produce_values(topic, batch, transactional_id=transactional_id)
        await run.quietly(PRODUCE, 9, values)


async def new_producer(run: Run) -> int:
    """Return a producer id of the broker's."""
    values: Mapping[str, Tree] = {"transactional_id": None, "transaction_timeout_ms": 60000}
    answer = await run.quietly(("InitProducerId", 22), 1, values)
    return number(answer, "producer_id")


def member_of(answer: Tree) -> str:
    """Return the member id of an answer."""
    return text(answer, "member_id")
