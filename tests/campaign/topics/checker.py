"""Reads everything that a campaign wrote, twice, with fresh clients, and has it judged.

    python -m tests.campaign.topics.checker --bootstrap ... --histories DIRECTORY --partitions N

Prints one JSON object; its status is 1 if a guarantee was broken. Leaves what a guarantee is to
`judge`.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition

from tests.campaign.judge import Violation
from tests.campaign.topics.asking import Ends
from tests.campaign.topics.facts import Facts, read_facts
from tests.campaign.topics.judge import (
    Found,
    judge_acked,
    judge_ends,
    judge_group,
    judge_log,
    judge_same,
    judge_tokens,
)
from tests.campaign.topics.payloads import identify
from tests.campaign.topics.spans import SpanMaker
from tests.campaign.topics.work import PLAIN, TOKENS

READ_S_MAX: Final = 600.0
SILENT_S_MAX: Final = 60.0
STABLE_S_MAX: Final = 60.0
"""After the end of everything, transactions that nobody ended must have timed out within this."""
CALL_S: Final = 10.0
VIOLATIONS_SHOWN_MAX: Final = 50


class Reading:
    """Reads topics of one cluster."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._partitions = range(partitions)

    def ends(self, topic: str, level: IsolationLevel) -> dict[int, int]:
        """Return where each partition ends, waiting for those without a leader."""
        deadline = time.monotonic() + SILENT_S_MAX
        with Ends(self._bootstrap, level) as source:
            while True:
                try:
                    return source.all(topic, len(self._partitions), CALL_S)
                except KafkaException:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)

    def wait_until_stable(self, topic: str) -> float:
        """Wait until no transaction is open; return how long that took. Raises TimeoutError."""
        begun = time.monotonic()
        while True:
            ends = self.ends(topic, IsolationLevel.READ_UNCOMMITTED)
            stable = self.ends(topic, IsolationLevel.READ_COMMITTED)
            waited = time.monotonic() - begun
            if ends == stable:
                return waited
            if waited > STABLE_S_MAX:
                raise TimeoutError(f"transactions stay open: ends {ends}, stable {stable}")
            time.sleep(0.2)

    def read(self, topic: str, *, is_committed: bool) -> Found:
        """Read a topic from its beginning to where it ends now."""
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        ends = self.ends(topic, level)
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "checker",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": level.name.lower(),
                "check.crcs": True,
            }
        )
        found, maker = Found(), SpanMaker()
        try:
            consumer.assign([TopicPartition(topic, each, 0) for each in self._partitions])
            self._read_to(consumer, topic, ends, found, maker)
        finally:
            consumer.close()
        found.spans = maker.spans
        return found

    def _read_to(
        self, consumer: Consumer, topic: str, ends: dict[int, int], found: Found, maker: SpanMaker
    ) -> None:
        deadline = time.monotonic() + READ_S_MAX
        pending = {each: end for each, end in ends.items() if end}
        while pending:
            messages = consumer.consume(5_000, 1.0)
            if time.monotonic() > deadline:
                found.error = f"not read to the end in {READ_S_MAX:.0f} s: {pending}"
                return
            for message in messages:
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is not None and error.name() != "_PARTITION_EOF":
                    if not error.retriable():
                        found.error = f"{partition}: {error}"
                        return
                    continue
                assert partition is not None, "it is of a partition"
                assert offset is not None, "it is of a place"
                if error is not None:
                    if offset >= ends[partition]:
                        pending.pop(partition, None)
                    continue
                identity = identify(message.value(), partition)
                if identity is None:
                    found.foreign.append(f"{partition}, offset {offset}")
                else:
                    maker.add(partition, identity.writer, identity.sequence, offset)


def check(bootstrap: str, facts: Facts, partitions: int) -> tuple[list[Violation], dict[str, Any]]:
    """Read everything twice and judge it; return also what is told of the reading."""
    reading = Reading(bootstrap, partitions)
    stable_s = reading.wait_until_stable(TOKENS)
    plain = [reading.read(PLAIN, is_committed=False) for _ in range(2)]
    everything = reading.read(TOKENS, is_committed=False)
    committed = [reading.read(TOKENS, is_committed=True) for _ in range(2)]
    violations = judge_log(PLAIN, plain[0]) + judge_acked(facts, plain[0])
    violations += judge_same("plain, read again", plain[0].spans, plain[1].spans)
    violations += judge_same("plain, read before", plain[1].spans, plain[0].spans)
    violations += judge_log(TOKENS, everything) + judge_log(TOKENS, committed[0])
    violations += judge_tokens(facts.tokens, committed[0])
    violations += judge_same("tokens, read again", committed[0].spans, committed[1].spans)
    violations += judge_same("tokens, read before", committed[1].spans, committed[0].spans)
    violations += judge_same("tokens, watched", facts.watched, committed[0].spans)
    violations += judge_ends(facts)
    for name, group in facts.groups.items():
        violations += judge_group(name, group, plain[0])
    told = {
        "plain_records": plain[0].count,
        "token_records": committed[0].count,
        "token_records_aborted": everything.count - committed[0].count,
        "watched_records": sum(s.count for spans in facts.watched.values() for s in spans),
        "transactions_ended_after_s": round(stable_s, 2),
    }
    return violations, told


def main() -> int:
    """Check, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--histories", type=Path, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    given = parser.parse_args()
    violations, told = check(given.bootstrap, read_facts(given.histories), given.partitions)
    kinds: Counter[str] = Counter()
    for each in violations:
        kinds[each.kind] += each.count
    shown = [asdict(each) for each in violations[:VIOLATIONS_SHOWN_MAX]]
    sys.stdout.write(json.dumps(told | {"broken": dict(kinds), "violations": shown}) + "\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
