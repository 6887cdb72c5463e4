"""Benchmark of appends and reads over TLS, next to the same without it, in one run.

Two clusters of three bookies, one of them secure; E = WQ = AQ = 3. Both are up during the complete
run, and the cases take turns.

Target: `append_many` of 1 KiB entries over TLS at >= 0.5 of the MB/s without it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.append_load import append_by_many, append_one_by_one
from benchmarks.ledgers.workload import Load
from benchmarks.measures import interleaved, latency_figures, megabytes_per_second
from benchmarks.runner import Bench, run
from ledger_client import Quorum

SHARE_WANTED: Final = 0.5
QUORUM: Final = Quorum(3, 3, 3)
KINDS: Final = ("without TLS", "TLS")
WAYS: Final = ("append_many 1024 B", "read 1024 B", "one outstanding 1024 B")


@asynccontextmanager
async def _both(bench: Bench) -> AsyncIterator[dict[str, Running]]:
    with bench.subdirectory() as plain, bench.subdirectory() as secure:
        async with (
            running(plain, 3) as without,
            running(secure, 3, secure=True) as over,
        ):
            yield {"without TLS": without, "TLS": over}


async def _read(cluster: Running, ledger_id: int, load: Load) -> dict[str, float | None]:
    async with cluster.client.open_ledger(ledger_id) as reader:
        metered, start, count = cluster.metered(), perf_counter(), 0
        async for batch in reader.read(0, load.entry_count - 1):
            count += len(batch)
        seconds = perf_counter() - start
        own, bookies = metered.finish()
    assert count == load.entry_count, "everything is read"
    return {
        "MB_per_s": megabytes_per_second(load.payload_bytes, seconds),
        "reader_cpu_s": own.cpu_s,
        "bookies_cpu_s": bookies.cpu_s,
    }


async def _measure(bench: Bench) -> None:
    load = Load(1024, bench.size(200_000, 2_000))
    few = Load(1024, bench.size(2_000, 50))
    async with _both(bench) as clusters:
        ledgers: dict[str, int] = {}
        for kind, cluster in clusters.items():
            async with cluster.client.create_ledger(QUORUM) as ledger:
                await ledger.append_many(load.payloads())
            ledgers[kind] = ledger.id
        cases = [(way, kind) for way in WAYS for kind in KINDS]
        for _, (way, kind) in interleaved(cases, bench.repetitions):
            cluster, name = clusters[kind], f"{way}, {kind}"
            async with bench.measured(name):
                sample: dict[str, object]
                if way == WAYS[0]:
                    sample = (await append_by_many(cluster, QUORUM, load)).as_json()
                elif way == WAYS[1]:
                    sample = dict(await _read(cluster, ledgers[kind], load))
                else:
                    seconds = await append_one_by_one(cluster, QUORUM, few)
                    sample = dict(latency_figures(seconds))
                bench.report.sample(name, sample)
    report = bench.report
    for way, figure in zip(WAYS, ("MB_per_s", "MB_per_s", "p50_ms"), strict=True):
        for kind in KINDS:
            report.figure(f"{way}, {kind}", figure, "ms" if figure == "p50_ms" else figure)
        without, over = (report.values(f"{way}, {kind}", figure) for kind in KINDS)
        shares = [mine / other for mine, other in zip(over, without, strict=True)]
        least = SHARE_WANTED if way == WAYS[0] else None
        report.figure(f"{way}, TLS", "share_of_plain", "ratio", values=shares, at_least=least)


if __name__ == "__main__":
    run("ledgers.tls", _measure)
