"""Process that repeatedly queries values that must never go back: partition ends and offsets.

Leaves judging to `judge`.

Invariant: it sends one query at a time, so each answer is of a later time than the previous one.
"""

import sys
import time
from contextlib import ExitStack
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient

from tests.campaign.topics.asking import Ends, Offsets
from tests.campaign.topics.work import GROUP, PLAIN, TOKENS, Silence, Worker

EVERY_S: Final = 0.7
CALL_S: Final = 10.0
ENDS_S: Final = 2.0


def _ask_ends(worker: Worker, source: Ends, topic: str, silence: Silence) -> None:
    worker.alive()
    answers = source.known(topic, worker.options.partitions, ENDS_S)
    ends = {key: value for key, value in answers.items() if isinstance(value, int)}
    for why in answers.values():
        if isinstance(why, str):
            worker.tell("failed", error=f"end: {why}", text=topic)
    silence.note(got_some=bool(ends))
    if ends:
        worker.tell("ends", topic=topic, level=source.level, ends=ends)


def _ask_offsets(worker: Worker, source: Offsets) -> None:
    worker.alive()
    asked_at = time.monotonic()
    try:
        found = source.of(PLAIN, worker.options.partitions, CALL_S)
    except KafkaException as raised:
        worker.failed("offsets", raised.args[0])
        return
    worker.tell("offsets fetched", group=source.group, asked=asked_at, offsets=found)


def _ask_in_sync(worker: Worker, admin: AdminClient) -> None:
    try:
        topics = admin.list_topics(timeout=CALL_S).topics
    except KafkaException as raised:
        worker.failed("list topics", raised.args[0])
        return
    counts = [
        len(part.isrs)
        for topic in (PLAIN, TOKENS)
        if topic in topics
        for part in topics[topic].partitions.values()
    ]
    worker.tell("in sync", counts=counts)


def main() -> int:
    """Observe until SIGTERM."""
    worker = Worker("observes ends and committed offsets")
    bootstrap = worker.options.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 1_000})
    with ExitStack() as stack:
        plain = stack.enter_context(Ends(bootstrap, IsolationLevel.READ_UNCOMMITTED))
        committed = stack.enter_context(Ends(bootstrap, IsolationLevel.READ_COMMITTED))
        groups = [
            stack.enter_context(Offsets(bootstrap, f"{GROUP}-{protocol}"))
            for protocol in worker.options.name.split("-")[1:]
        ]
        kinds = ((plain, PLAIN), (plain, TOKENS), (committed, TOKENS))
        asked = [(source, topic, Silence(worker)) for source, topic in kinds]
        while not worker.is_stopping:
            for source, topic, silence in asked:
                _ask_ends(worker, source, topic, silence)
            for group in groups:
                _ask_offsets(worker, group)
            _ask_in_sync(worker, admin)
            worker.pause(EVERY_S)
    worker.tell("ended", left=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
