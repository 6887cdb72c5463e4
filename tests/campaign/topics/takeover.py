"""`python -m tests.campaign.topics.takeover --partitions 1000`: kill -9 of a broker, and the time
until the partitions that it led accept records again.

Prints one JSON object. Leaves taking over to the brokers. No limit on the times is asserted; the
exit status is 1 if a partition was not available again within the measurement.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quire.local.local_server import SESSION_TIMEOUT_S
from quire.local_cluster import LocalCluster

TOPIC: Final = "many"
CALL_S: Final = 60.0
GIVE_UP_S: Final = 120.0
ASK_EVERY_S: Final = 0.1


class Taking:
    """Producer that records when each partition accepted its record."""

    def __init__(self, bootstrap: str) -> None:
        self._taken: dict[int, float] = {}
        self._failed: dict[int, str] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "max.in.flight": 1_000,  # one request for each partition: five would queue up
                "linger.ms": 0,
                "message.timeout.ms": int(GIVE_UP_S * 1000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def take(self, partitions: list[int]) -> tuple[dict[int, float], dict[int, str]]:
        """Produce to each partition; return the time of each, and the errors of failed ones."""
        self._taken, self._failed = {}, {}
        for number in partitions:
            tell = partial(self._on_delivery, number)
            self._producer.produce(TOPIC, b"taken", partition=number, on_delivery=tell)
        deadline = time.monotonic() + GIVE_UP_S
        while len(self._taken) + len(self._failed) < len(partitions):
            self._producer.poll(0.02)
            if time.monotonic() > deadline:
                break
        return self._taken, self._failed

    def _on_delivery(self, number: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._taken[number] = time.monotonic()
        else:
            self._failed[number] = str(error)


def leaders(admin: AdminClient) -> dict[int, int]:
    """Return the leader of each partition, as one broker reports it."""
    found = admin.list_topics(TOPIC, CALL_S).topics[TOPIC].partitions
    return {number: part.leader for number, part in found.items()}


def wait_until_led_by_others(admin: AdminClient, dead: int, since: float) -> float | None:
    """Return the time until no partition is reported with the dead leader; None if never."""
    while time.monotonic() - since < GIVE_UP_S:
        if all(leader not in (dead, -1) for leader in leaders(admin).values()):
            return time.monotonic() - since
        time.sleep(ASK_EVERY_S)
    return None


def cpu_s(pids: list[int]) -> float:
    """Return the processor time that processes have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    ticks = sum(int(field[11]) + int(field[12]) for field in fields)
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(partitions: int, brokers: int, bookies: int) -> dict[str, object]:
    """Start a cluster, kill a broker, and return the measurements."""
    async with LocalCluster(bookies, broker=brokers) as cluster:
        bootstrap = ",".join(broker.address for broker in cluster.brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        begun = time.monotonic()
        made = admin.create_topics(
            [NewTopic(TOPIC, partitions, 3, config={"min.insync.replicas": "2"})],
            operation_timeout=CALL_S,
        )
        await asyncio.to_thread(made[TOPIC].result, CALL_S)
        created_s = time.monotonic() - begun
        taking = Taking(bootstrap)
        begun = time.monotonic()
        first, failed = await asyncio.to_thread(taking.take, list(range(partitions)))
        first_s = time.monotonic() - begun
        assert not failed, failed
        assert len(first) == partitions, f"{len(first)} of {partitions} were taken"
        victim = cluster.brokers[0]
        led = [n for n, leader in (await asyncio.to_thread(leaders, admin)).items()
               if leader == victim.id]  # fmt: skip
        survivors = [broker.pid for broker in cluster.brokers if broker is not victim]
        cpu_before_s = cpu_s(survivors)
        victim.kill()
        killed = time.monotonic()
        waiting = asyncio.to_thread(wait_until_led_by_others, admin, victim.id, killed)
        (taken, failed), led_after_s = await asyncio.gather(
            asyncio.to_thread(taking.take, led), waiting
        )
        times = sorted(at - killed for at in taken.values())
        return {
            "partitions": partitions,
            "brokers": brokers,
            "led_by_the_killed": len(led),
            "created_s": round(created_s, 2),
            "first_records_s": round(first_s, 2),
            "session_timeout_s": SESSION_TIMEOUT_S,
            "told_led_by_others_after_s": led_after_s and round(led_after_s, 2),
            "first_taken_after_s": round(times[0], 2) if times else None,
            "median_taken_after_s": round(statistics.median(times), 2) if times else None,
            "last_taken_after_s": round(times[-1], 2) if times else None,
            "beyond_session_timeout_s": round(times[-1] - SESSION_TIMEOUT_S, 2) if times else None,
            "processor_s_of_survivors": round(cpu_s(survivors) - cpu_before_s, 2),
            "not_taken": len(led) - len(times),
            "failed": list(failed.values())[:5],
        }


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--bookies", type=int, default=3)
    given = parser.parse_args()
    result = asyncio.run(measure(given.partitions, given.brokers, given.bookies))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 1 if result["not_taken"] else 0


if __name__ == "__main__":
    sys.exit(main())
