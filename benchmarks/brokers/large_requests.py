"""Benchmark of the largest requests of every API of a broker: how long other clients wait.

A broker gets one request after the other: of each served API, one for each array, filled with as
many elements as a request may have. Each is sent with names and numbers that all differ, and again
with one name for all, that of a topic. Meanwhile another client asks for ApiVersions in a closed
loop, and its longest wait is measured. Leaves the bytes of requests to
`benchmarks.brokers.filled_request`.

On a busy machine the wait includes the time that other processes take. So `hold_ms`, for how long
the request held the broker's loop at most, is the smaller one of the wait and of `cpu_ms`, the
processor time of the broker and its threads. `quiet_ms` is the longest wait before the request.

Target: no hold above 50 ms.
"""

import argparse
import asyncio
import math
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from benchmarks.brokers.filled_request import Filling, Way, filled, ways_of
from benchmarks.brokers.request_frame import is_flexible, request_frame
from benchmarks.measures import interleaved
from benchmarks.processes import host_and_port, usage_of
from benchmarks.runner import Bench, run
from broker_layer.kafka.messages import request_class
from broker_layer.kafka.primitives import ELEMENTS_MAX
from broker_layer.kafka.versions import NEVER, SERVED, ApiKey
from quire.local_cluster import LocalCluster

HOLD_MS_WANTED: Final = 50.0
TOPIC: Final = "topic"
GROUP: Final = "group"
PAUSE_S: Final = 0.001
QUIET_S: Final = 0.1
ANSWER_S_MAX: Final = 30.0
READ_BYTES: Final = 1024 * 1024
WARM: Final = "warm"
SKIPPED: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""A listener without logins answers them with a constant."""

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Case:
    """One request."""

    key: ApiKey
    version: int
    way: Way
    same_name: str | None

    @property
    def name(self) -> str:
        """Return the name in the report."""
        shown = f"{self.key.shown} v{self.version} {'.'.join(self.way)}"
        return shown if self.same_name is None else f"{shown}, one name"

    def frame(self, elements: int) -> bytes:
        """Return the request with its header."""
        filling = Filling(self.version, is_flexible(self.key, self.version), self.same_name)
        body = filled(_class_of(self.key).json, self.way, elements, filling)
        return request_frame(self.key, self.version, body)


def _class_of(key: ApiKey) -> type[ApiMessage]:
    hot: dict[ApiKey, type[ApiMessage]] = {
        ApiKey.PRODUCE: ProduceRequest,
        ApiKey.FETCH: FetchRequest,
    }
    return hot.get(key) or request_class(key)


def _cases() -> Iterator[Case]:
    for key in ApiKey:
        served = SERVED[key]
        if key in SKIPPED:
            continue
        versions = {served.max}
        if served.flexible_from not in (0, NEVER) and served.flexible_from > served.min:
            versions.add(served.flexible_from - 1)
        for version in sorted(versions):
            for way in ways_of(_class_of(key).json, version):
                yield Case(key, version, way, None)
                yield Case(key, version, way, TOPIC)


class Probe:
    """Thread that asks for ApiVersions in a closed loop, and keeps the longest wait."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._ask = request_frame(ApiKey.API_VERSIONS, 0)
        self._longest_s = 0.0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take_longest_ms(self) -> float:
        """Return the longest wait since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1000

    def close(self) -> None:
        """End the thread."""
        self._is_over = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        pause = threading.Event()
        while not self._is_over:
            began_s = perf_counter()
            self._socket.sendall(self._ask)
            (size,) = _LENGTH.unpack(self._socket.recv(_LENGTH.size, socket.MSG_WAITALL))
            self._socket.recv(size, socket.MSG_WAITALL)
            self._longest_s = max(self._longest_s, perf_counter() - began_s)
            pause.wait(PAUSE_S)


async def _send(address: tuple[str, int], frame: bytes) -> int | None:
    """Send a request; return the size of its answer, or None without one."""
    reader, writer = await asyncio.open_connection(*address, limit=READ_BYTES)
    try:
        writer.write(frame)
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        left = size
        while left:
            got = await reader.read(min(left, READ_BYTES))
            if not got:
                return None
            left -= len(got)
        return int(size)
    except (EOFError, OSError):
        return None
    finally:
        writer.transport.abort()


async def _measure_case(
    bench: Bench, address: tuple[str, int], pid: int, probe: Probe, case: Case
) -> None:
    elements = bench.size(bench.options.elements, 100)
    frame = case.frame(elements)
    probe.take_longest_ms()
    await asyncio.sleep(QUIET_S)
    quiet_ms, before = probe.take_longest_ms(), usage_of(pid).cpu_s
    began_s = perf_counter()
    try:
        size = await asyncio.wait_for(_send(address, frame), ANSWER_S_MAX)
    except TimeoutError:
        size = None
    took_ms = (perf_counter() - began_s) * 1000
    await asyncio.sleep(QUIET_S)
    after, wait_ms = usage_of(pid).cpu_s, probe.take_longest_ms()
    cpu_ms = math.inf if before is None or after is None else (after - before) * 1000
    bench.report.sample(
        case.name,
        {
            "hold_ms": min(wait_ms, cpu_ms),
            "wait_ms": wait_ms,
            "quiet_ms": quiet_ms,
            "answered_ms": took_ms,
            "cpu_ms": cpu_ms if math.isfinite(cpu_ms) else None,
            "request_bytes": len(frame),
            "answer_bytes": size,
        },
    )


async def _prepare(address: tuple[str, int]) -> None:
    """Create the topic, and the partitions of the coordinator."""
    for key, version, way, name in (
        (ApiKey.METADATA, 3, ("Topics",), TOPIC),
        (ApiKey.FIND_COORDINATOR, 4, ("CoordinatorKeys",), GROUP),
    ):
        await _send(address, Case(key, version, way, name).frame(1))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--elements", type=int, default=ELEMENTS_MAX, help="of each request")
    parser.add_argument("--only", nargs="+", metavar="API", help="names such as OffsetFetch")


async def _measure(bench: Bench) -> None:
    only = bench.options.only
    cases = [measured for measured in _cases() if only is None or measured.key.shown in only]
    with bench.subdirectory() as directory:
        async with LocalCluster(3, directory, broker=1) as cluster:
            broker = cluster.brokers[0]
            address = host_and_port(broker.address)
            await _prepare(address)
            probe = Probe(address)
            try:
                for _, case in interleaved(cases, bench.repetitions):
                    await _measure_case(bench, address, broker.pid, probe, case)
            finally:
                probe.close()
    for case in cases:
        bench.report.figure(case.name, "hold_ms", "ms", at_most=HOLD_MS_WANTED)


if __name__ == "__main__":
    run("large_requests", _measure, _add_options, repeat=1)
