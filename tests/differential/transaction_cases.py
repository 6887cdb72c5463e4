"""Differential cases: order, fencing and visibility of transactions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.differential.answers import number
from tests.differential.batches import TRANSACTIONAL, Batch
from tests.differential.fetch_cases import fetch_values
from tests.differential.group_cases import OFFSETS, join_alone, offsets_values
from tests.differential.offset_cases import list_values
from tests.differential.run import FETCH, LIST_OFFSETS, PRODUCE, Run, produce_values, store
from tests.differential.wire import Tree

INIT: Final = ("InitProducerId", 22)
ADD_PARTITIONS: Final = ("AddPartitionsToTxn", 24)
ADD_OFFSETS: Final = ("AddOffsetsToTxn", 25)
END: Final = ("EndTxn", 26)
COMMIT_OFFSETS: Final = ("TxnOffsetCommit", 28)
DESCRIBE_PRODUCERS: Final = ("DescribeProducers", 61)
DESCRIBE: Final = ("DescribeTransactions", 65)
LIST: Final = ("ListTransactions", 66)
TIMEOUT_MS: Final = 60_000
NEWEST_INIT: Final = 5
"""A version of InitProducerId that not every broker serves."""
NEVER_ROLLED: Final = str(100 * 365 * 24 * 3_600_000)
"""Kafka begins a segment when times are `segment.ms` apart, as markers' and ours are, and ends each
Fetch at a segment's end."""


@dataclass(slots=True)
class Transactional:
    """A transactional producer on the wire."""

    run: Run
    name: str
    producer: int = -1
    epoch: int = -1
    sequence: int = 0

    async def start(self) -> None:
        """Get a producer id and the next epoch."""
        values = init_values(self.name)
        answer = await self.run.quietly(INIT, 3, values)
        self.producer = number(answer, "producer_id")
        self.epoch = number(answer, "producer_epoch")
        self.sequence = 0

    def batch(self, *values: bytes) -> Batch:
        """Return the next batch."""
        sequence, self.sequence = self.sequence, self.sequence + len(values)
        return Batch(
            values=values,
            producer_id=self.producer,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )

    def partitions(self, topic: str, parts: Sequence[int] = (0,)) -> Mapping[str, Tree]:
        """Return an AddPartitionsToTxn request."""
        return {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.producer,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(parts)}],
        }

    def offsets_of(self, group: str) -> Mapping[str, Tree]:
        """Return an AddOffsetsToTxn request."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
            "group_id": group,
        }

    def end(self, *, committed: bool) -> Mapping[str, Tree]:
        """Return an EndTxn request."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
            "committed": committed,
        }

    def offsets(
        self, group: str, topic: str, offset: int, generation: int = -1, member: str = ""
    ) -> Mapping[str, Tree]:
        """Return a TxnOffsetCommit request."""
        part: Mapping[str, Tree] = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_metadata": "",
        }
        return {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
            "generation_id": generation,
            "member_id": member,
            "topics": [{"name": topic, "partitions": [part]}],
        }

    async def finish(self, name: str, *, committed: bool, version: int = 2) -> None:
        """End the transaction, record the answer, and return when every marker is written.

        A repeated request for the same end is answered when the first one is complete.
        """
        values = self.end(committed=committed)
        await self.run.ask(name, END, version, values)
        await self.run.quietly(END, version, values)

    async def append(self, topic: str, *values: bytes) -> None:
        """Add partition 0 to the transaction and append to it."""
        await self.run.quietly(ADD_PARTITIONS, 3, self.partitions(topic))
        await store(self.run, topic, self.batch(*values), transactional_id=self.name)


def init_values(
    name: str | None, *, timeout_ms: int = TIMEOUT_MS, producer: int = -1, epoch: int = -1
) -> Mapping[str, Tree]:
    """Return an InitProducerId request."""
    return {
        "transactional_id": name,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": producer,
        "producer_epoch": epoch,
    }


async def starting(run: Run) -> None:
    """InitProducerId, valid and invalid."""

    async def start(name: str, values: Mapping[str, Tree], version: int = 3) -> Tree:
        return await run.ask(f"init/{name}", INIT, version, values)

    mine = run.name("starting")
    for version in range(NEWEST_INIT + 1):
        own = mine if version < NEWEST_INIT else run.name("starting-newest")
        await start(f"without transactions, version {version}", init_values(None), version)
        await start(f"transactional, version {version}", init_values(own), version)
    await start("empty id", init_values(""))
    for name, timeout in {"zero": 0, "negative": -1, "too long": 10**9}.items():
        await start(f"timeout {name}", init_values(mine, timeout_ms=timeout))
    current = await start("again", init_values(mine))
    producer, epoch = number(current, "producer_id"), number(current, "producer_epoch")
    await start("with its epoch", init_values(mine, producer=producer, epoch=epoch))
    await start("with its former epoch", init_values(mine, producer=producer, epoch=epoch))
    await start("with an old epoch", init_values(mine, producer=producer, epoch=0))
    await start("with an epoch ahead", init_values(mine, producer=producer, epoch=epoch + 9))
    await start("with another producer id", init_values(mine, producer=producer + 77, epoch=0))
    await start("producer id without epoch", init_values(mine, producer=producer))
    await start("epoch without producer id", init_values(mine, epoch=3))
    unknown = init_values(run.name("unheard"), producer=producer, epoch=3)
    await start("unknown id with a producer id", unknown)


async def committing(run: Run) -> None:
    """One transaction from its start to its end, and what readers see at the same time."""
    topic = await run.topic("transactions", partitions=2, segment_ms=NEVER_ROLLED)
    mine = Transactional(run, run.name("committing"))
    await mine.start()

    async def read(name: str, *, read_committed: bool) -> None:
        values = fetch_values([(topic, 0, 0)], read_committed=read_committed)
        kind = "committed" if read_committed else "uncommitted"
        await run.ask(f"transaction/{name}, {kind}", FETCH, 11, values)

    async def state(name: str) -> None:
        asked: Mapping[str, Tree] = {"transactional_ids": [mine.name]}
        await run.ask(f"transaction/{name}, described", DESCRIBE, 0, asked)

    await run.ask("transaction/end of none", END, 2, mine.end(committed=True))
    await run.ask("transaction/abort of none", END, 2, mine.end(committed=False))
    unregistered = produce_values(topic, mine.batch(b"early"), transactional_id=mine.name)
    await run.ask("transaction/append without partition", PRODUCE, 9, unregistered)
    mine.sequence = 0
    added = mine.partitions(topic, (0, 1))
    await run.ask("transaction/partitions", ADD_PARTITIONS, 3, added)
    await run.ask("transaction/partitions again", ADD_PARTITIONS, 3, added)
    wrong = mine.partitions(topic, (0, 9))
    await run.ask("transaction/unknown partition", ADD_PARTITIONS, 3, wrong)
    wrong = mine.partitions(run.name("absent"))
    await run.ask("transaction/unknown topic", ADD_PARTITIONS, 3, wrong)
    right = produce_values(topic, mine.batch(b"a", b"b"), transactional_id=mine.name)
    await run.ask("transaction/append", PRODUCE, 9, right)
    await store(run, topic, Batch())
    await state("open")
    asked: Tree = [{"name": topic, "partition_indexes": [0, 9]}]
    await run.ask("transaction/producers", DESCRIBE_PRODUCERS, 0, {"topics": asked})
    for isolation in (0, 1):
        values = list_values(topic, -1, isolation=isolation)
        await run.ask(f"transaction/open, latest {isolation}", LIST_OFFSETS, 5, values)
    for committed in (False, True):
        await read("open", read_committed=committed)
    await mine.finish("transaction/commit", committed=True)
    await run.ask("transaction/commit again", END, 2, mine.end(committed=True))
    await run.ask("transaction/abort after commit", END, 2, mine.end(committed=False))
    await state("committed")
    await run.note_end("transaction/end after commit", topic)
    for committed in (False, True):
        await read("committed", read_committed=committed)


async def aborting(run: Run) -> None:
    """Aborted transactions among others; fencing by a newer epoch."""
    topic = await run.topic("aborted", segment_ms=NEVER_ROLLED)
    one, two = Transactional(run, run.name("one")), Transactional(run, run.name("two"))
    for transactional in (one, two):
        await transactional.start()
    await one.append(topic, b"1a", b"1b")
    await two.append(topic, b"2a")
    await one.append(topic, b"1c")
    await one.finish("abort/first", committed=False)
    await run.ask("abort/first again", END, 2, one.end(committed=False))
    await run.ask("abort/commit after it", END, 2, one.end(committed=True))
    for offset in (0, 2, 4):
        values = fetch_values([(topic, 0, offset)], read_committed=True)
        await run.ask(f"abort/second still open, from {offset}", FETCH, 11, values)
    await two.finish("abort/commit of the second", committed=True)
    await one.append(topic, b"1d")
    await one.finish("abort/third", committed=False)
    for offset in (0, 3, 6):
        values = fetch_values([(topic, 0, offset)], read_committed=True)
        await run.ask(f"abort/all ended, from {offset}", FETCH, 11, values)
    await run.note_end("abort/end", topic)
    await one.append(topic, b"1e")
    newer = Transactional(run, one.name)
    await newer.start()
    await run.note_end("fence/end after the newer came", topic)
    late = produce_values(topic, one.batch(b"late"), transactional_id=one.name)
    await run.ask("fence/append of the older", PRODUCE, 9, late)
    for version in (1, 3):
        await run.ask(f"fence/end of the older {version}", END, version, one.end(committed=True))
        name = f"fence/partitions of the older {version}"
        await run.ask(name, ADD_PARTITIONS, version, one.partitions(topic))
        name = f"fence/offsets of the older {version}"
        await run.ask(name, ADD_OFFSETS, version, one.offsets_of(run.name("any")))
    other_id = Transactional(run, one.name, newer.producer + 99, 0)
    await run.ask("fence/end by another id", END, 3, other_id.end(committed=True))
    await run.ask("fence/partitions by another id", ADD_PARTITIONS, 3, other_id.partitions(topic))
    unheard = Transactional(run, run.name("never-heard"), newer.producer, 0)
    await run.ask("fence/end of an unknown one", END, 3, unheard.end(committed=True))
    await run.ask("fence/partitions of an unknown", ADD_PARTITIONS, 3, unheard.partitions(topic))


async def with_offsets(run: Run) -> None:
    """Offsets that are committed with a transaction (KIP-447)."""
    topic, group = await run.topic("transferred"), run.name("transferring")
    member, generation = await join_alone(run, group)
    mine = Transactional(run, run.name("offsets"))
    await mine.start()

    async def commit(name: str, offset: int, generation: int = -1, member: str = "") -> None:
        values = mine.offsets(group, topic, offset, generation, member)
        await run.ask(f"transfer/{name}", COMMIT_OFFSETS, 3, values)

    async def see(name: str) -> None:
        for stable in (False, True):
            values = {**offsets_values(group, topic), "require_stable": stable}
            kind = "stable" if stable else "any"
            await run.ask(f"transfer/{name}, {kind}", OFFSETS, 7, values, is_patient=False)

    await run.ask("transfer/added", ADD_OFFSETS, 3, mine.offsets_of(group))
    await run.ask("transfer/empty group id", ADD_OFFSETS, 3, mine.offsets_of(""))
    await commit("older generation", 5, generation - 1, member)
    await commit("unknown member", 5, generation, "no-member")
    await commit("right", 5, generation, member)
    await see("before the end")
    await mine.finish("transfer/commit", committed=True)
    await see("after the commit")
    await run.quietly(ADD_OFFSETS, 3, mine.offsets_of(group))
    await commit("without member", 9)
    await mine.finish("transfer/abort", committed=False)
    await see("after the abort")
    mine.epoch -= 1
    await commit("older epoch", 9, generation, member)


async def versions(run: Run) -> None:
    """Run a complete transaction in every version."""
    topic, group = await run.topic("transaction-versions"), run.name("transaction-group")
    for version in range(4):
        mine = Transactional(run, run.name(f"version-{version}"))
        await mine.start()
        name = f"version/AddPartitionsToTxn {version}"
        await run.ask(name, ADD_PARTITIONS, version, mine.partitions(topic))
        await store(run, topic, mine.batch(b"x"), transactional_id=mine.name)
        name = f"version/AddOffsetsToTxn {version}"
        await run.ask(name, ADD_OFFSETS, version, mine.offsets_of(group))
        name = f"version/TxnOffsetCommit {version}"
        await run.ask(name, COMMIT_OFFSETS, version, mine.offsets(group, topic, version))
        await mine.finish(f"version/EndTxn {version}", committed=True, version=version)
    await run.note_end("version/transactions' end", topic)
    for version in range(3):
        values: Mapping[str, Tree] = {"state_filters": ["CompleteCommit"]}
        name = f"version/ListTransactions {version}"
        if not run.serves(LIST[1], version):
            run.not_advertised.append(f"{name}: {LIST[0]} {version}")
            continue
        listed = await run.quietly(LIST, version, values)
        run.note_names(name, listed, "transaction_states", "transactional_id")
    unknown: Mapping[str, Tree] = {"transactional_ids": [run.name("never-heard"), ""]}
    await run.ask("transaction/describe unknown ones", DESCRIBE, 0, unknown)


CASES: Final = (starting, committing, aborting, with_offsets, versions)
