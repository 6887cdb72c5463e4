"""Process that reads all data of a campaign twice with new clients, and judges it.

    python -m tests.campaign.topics.checker --bootstrap ... --histories DIRECTORY --partitions N

Prints one JSON object. The exit status is 1 if a guarantee was broken. Leaves the guarantees to
`judge` and to `tests.judge.elle`, and reading to `reading`. With `--transactions FILE` it writes
the history of transactions that it judges.
"""

import argparse
import json
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from confluent_kafka import IsolationLevel

from tests.campaign.judge import Violation
from tests.campaign.topics.exporting import transactions_of
from tests.campaign.topics.facts import Facts, read_facts
from tests.campaign.topics.judge import (
    Found,
    judge_acked,
    judge_ends,
    judge_group,
    judge_log,
    judge_same,
    judge_tokens,
    judge_unseen,
)
from tests.campaign.topics.reading import Reading, joined, new_pool
from tests.campaign.topics.work import PLAIN, TOKENS
from tests.judge.elle import find_anomalies
from tests.judge.transactions import write_transactions

VIOLATIONS_SHOWN_MAX: Final = 50


class Readings:
    """Both topics as they were read."""

    def __init__(self, reading: Reading) -> None:
        everything, committed = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        plain = [reading.begin(PLAIN, everything) for _ in range(2)]
        tokens = [reading.begin(TOKENS, level) for level in (everything, committed, committed)]
        self.plain, self.plain_again = (joined(each) for each in plain)
        self.everything, self.committed, self.committed_again = (joined(token) for token in tokens)

    @property
    def count(self) -> int:
        """Number of records read, for each reading."""
        plain = self.plain.count + self.plain_again.count
        return plain + sum(
            found.count for found in (self.everything, self.committed, self.committed_again)
        )


def judge(facts: Facts, read: Readings) -> list[Violation]:
    """Return every guarantee that was broken."""
    plain, committed = read.plain, read.committed
    violations = judge_log(PLAIN, plain) + judge_acked(facts, plain)
    violations += _judge_again(PLAIN, plain, read.plain_again)
    violations += judge_log(TOKENS, read.everything) + judge_log(TOKENS, committed)
    violations += judge_tokens(facts.tokens, committed)
    violations += _judge_again(TOKENS, committed, read.committed_again)
    for name, watched in facts.watched.items():
        violations += judge_same(f"{TOKENS}, seen by {name}", watched, committed.spans)
        violations += judge_unseen(f"{TOKENS}, by {name}", watched, committed.spans)
    violations += judge_ends(facts)
    for name, group in facts.groups.items():
        violations += judge_group(name, group, plain)
    return violations


def _judge_again(topic: str, first: Found, again: Found) -> list[Violation]:
    unreadable = [Violation("unreadable", 0, 1, f"{topic}: {again.error}")] if again.error else []
    return [
        *unreadable,
        *judge_same(f"{topic}, read again", first.spans, again.spans),
        *judge_same(f"{topic}, read before", again.spans, first.spans),
    ]


def check(
    bootstrap: str, facts: Facts, partitions: int, transactions: Path | None
) -> tuple[list[Violation], dict[str, Any]]:
    """Read all data twice and judge it; return also the facts about the readings."""
    begun = time.monotonic()
    with new_pool() as pool:
        reading = Reading(bootstrap, partitions, pool)
        stable_s, still_open = reading.wait_until_stable(TOKENS)
        read = Readings(reading)
    read_at = time.monotonic()
    violations = [
        Violation("unserved", partition, 1, f"{topic} {partition}: {why}")
        for (topic, partition), why in reading.unserved.items()
    ]
    if still_open:
        violations.append(Violation("open transaction", 0, 1, still_open))
    violations += judge(facts, read)
    history = transactions_of(facts, read.committed)
    if transactions is not None:
        write_transactions(transactions, history)
    report = find_anomalies(history)
    violations += [Violation(anomaly.kind, 0, 1, anomaly.text) for anomaly in report.anomalies]
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    told = {
        "plain_records": read.plain.count,
        "plain_spans": sum(len(spans) for spans in read.plain.spans.values()),
        "transactions": report.as_json(),
        "token_records": read.committed.count,
        "token_records_aborted": read.everything.count - read.committed.count,
        "watched_records": {
            name: sum(spans.count for spans in watched.values())
            for name, watched in facts.watched.items()
        },
        "records_read_by_groups": {
            name: sum(spans.count for spans in group.read.values())
            for name, group in facts.groups.items()
        },
        "records_read_at_the_end": read.count,
        "transactions_ended_after_s": round(stable_s, 2),
        "read_in_s": round(read_at - begun - stable_s, 1),
        "judged_in_s": round(time.monotonic() - read_at, 1),
        "memory_mb_max": max(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024,
    }
    return violations, told


def main() -> int:
    """Check, and print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--histories", type=Path, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--transactions", type=Path)
    given = parser.parse_args()
    facts = read_facts(given.histories)
    violations, told = check(given.bootstrap, facts, given.partitions, given.transactions)
    kinds: Counter[str] = Counter()
    for violation in violations:
        kinds[violation.kind] += violation.count
    shown = [asdict(violation) for violation in violations[:VIOLATIONS_SHOWN_MAX]]
    sys.stdout.write(json.dumps(told | {"broken": dict(kinds), "violations": shown}) + "\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
