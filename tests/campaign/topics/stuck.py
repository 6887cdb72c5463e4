"""Detection of a reader that gets no records though there are some, and search for the cause.

Leaves ending it to `work`, and reading to `watcher`.

Collected facts: its position and the end of the partition; what it knows of brokers and of the
partition (librdkafka's statistics); what its threads wait for (gdb, if installed); and whether a
new reader gets records at the same position. If not even that one does, the brokers are the cause.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

STUCK_S_MAX: Final = 45.0
FRESH_S_MAX: Final = 20.0
GDB_S_MAX: Final = 60.0
FRAMES_MAX: Final = 10
PARTITION_STATISTICS: Final = (
    *("broker", "leader", "leader_epoch", "fetch_state", "fetchq_cnt"),
    *("query_offset", "next_offset", "app_offset", "eof_offset", "ls_offset", "hi_offset"),
)
BROKER_STATISTICS: Final = (
    *("state", "stateage", "outbuf_cnt", "waitresp_cnt", "txidle", "rxidle", "req_timeouts"),
    "req",
)
_THREAD: Final = re.compile(r'^Thread \d+ .*?(?:"([^"]*)")?\)?:$')
_FRAME: Final = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?([\w@.?]+)")


@dataclass(frozen=True, slots=True)
class Behind:
    """A partition whose reader has not moved since `since`, though its end is further."""

    partition: int
    position: int
    since: float
    end: int


class Standstill:
    """Compares a reader's positions with the ends of partitions."""

    def __init__(self) -> None:
        self._behind: dict[int, Behind] = {}

    def note(
        self, positions: Sequence[int], ends: Mapping[int, int], now: float
    ) -> tuple[Behind, ...]:
        """Return the partitions that did not move for too long.

        The time runs from the first check that found records to get.
        """
        stuck = []
        for partition, end in ends.items():
            position = positions[partition]
            known = self._behind.get(partition)
            if position >= end:
                self._behind.pop(partition, None)
            elif known is None or known.position != position:
                self._behind[partition] = Behind(partition, position, now, end)
            elif now - known.since > STUCK_S_MAX:
                stuck.append(Behind(partition, position, known.since, end))
        return tuple(stuck)


def fresh_reader(settings: Mapping[str, str | bool], topic: str, behind: Behind) -> int | None:
    """Return the offset that another consumer gets first at the same position; None if it gets
    none.
    """
    consumer = Consumer(dict(settings))
    try:
        consumer.assign([TopicPartition(topic, behind.partition, behind.position)])
        deadline = time.monotonic() + FRESH_S_MAX
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return message.offset()
            if message is not None and message.error().name() == "_PARTITION_EOF":  # type: ignore[union-attr]
                return message.offset()
    finally:
        consumer.close()
    return None


def known_to_client(statistics: str, topic: str, partitions: Sequence[int]) -> dict[str, Any]:
    """Return the parts of librdkafka's statistics that explain why a partition is not read."""
    if not statistics:
        return {}
    told = json.loads(statistics)
    held = told["topics"].get(topic, {}).get("partitions", {})
    return {
        "partitions": {
            number: _chosen(held.get(str(number), {}), PARTITION_STATISTICS)
            for number in partitions
        },
        "brokers": {
            name: _chosen(each, BROKER_STATISTICS) for name, each in told["brokers"].items()
        },
    }


def threads_of(pid: int, path: Path) -> list[str]:
    """Write the stacks of a process to a file.

    Return those of the client's threads in one line each, innermost first; nothing if gdb is
    missing or not allowed.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        return []
    command = [
        *(gdb, "-nx", "-batch", "-iex", "set debuginfod enabled off"),
        *("-p", str(pid), "-ex", "thread apply all backtrace"),
    ]
    with path.open("wb") as file:  # the reader of a pipe would be stopped with the process
        try:
            subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=GDB_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return []
    return stacks(path.read_text(errors="replace"))


def stacks(text: str) -> list[str]:
    """Return the backtraces of librdkafka's threads, in one line each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        thread, frame = _THREAD.match(line), _FRAME.match(line)
        if thread:
            found.append((thread[1] or "?", []))
        elif frame and found:
            found[-1][1].append(frame[1])
    return [
        f"{name}: {' < '.join(frames[:FRAMES_MAX])}"
        for name, frames in found
        if any(each.startswith("rd_kafka") for each in frames)
    ]


def _chosen(statistics: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: _used(statistics[name]) for name in names if name in statistics}


def _used(value: Any) -> Any:
    """Leave out the kinds of requests that were never sent."""
    return {key: n for key, n in value.items() if n} if isinstance(value, dict) else value
