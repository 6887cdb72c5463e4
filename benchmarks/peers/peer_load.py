"""Load on a peer through its load client: the common part of BookKeeper and Kafka.

Leaves servers and settings to `bookkeeper` and `kafka`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.java_process import JavaServer, LoadClient
from benchmarks.peers.workloads import (
    KIB_BYTES,
    KIB_OUTSTANDING,
    OPEN_PER_S,
    SMALL_BYTES,
    Counts,
    Subject,
    Trial,
    Workload,
)
from benchmarks.processes import PeakMemory, usage_of


@dataclass(frozen=True, slots=True)
class Peer:
    """Names of a peer's work in the commands of its load client."""

    counts: Counts
    small_outstanding: int
    variants: Sequence[tuple[Subject, str]]
    """Subjects of appends, and their names in the load client."""
    ways: Sequence[tuple[Subject, str]]
    """Subjects of reads, and their names in the load client."""


async def put_load(
    trial: Trial, peer: Peer, client: LoadClient, servers: Sequence[JavaServer]
) -> None:
    """Warm up, append, read; then measure the servers' memory."""
    counts = peer.counts
    for _, variant in peer.variants:
        warm_up = counts.warm_up // len(peer.variants)
        await client.ask("append", variant, KIB_BYTES, warm_up, KIB_OUTSTANDING)
    for workload in trial.appends():
        for subject, variant in peer.variants:
            async with trial.bench.measured(f"{subject}: {workload}"):
                figures = await client.ask(*_command(trial, peer, workload, variant))
                if workload is Workload.OPEN:
                    figures = await client.answer()
            trial.note(workload, subject, figures)
    await client.ask("fill", KIB_BYTES, counts.read)
    for subject, way in peer.ways:
        async with trial.bench.measured(f"{subject}: {Workload.READ}"):
            await client.ask("read", way)  # a warm-up, as for every system
            figures = await client.ask("read", way)
        trial.note(Workload.READ, subject, figures)
    peak = PeakMemory()
    for server in servers:
        peak.note(usage_of(server.pid))
    resident = peak.anonymous_bytes + peak.mapped_bytes
    trial.note(Workload.MEMORY, peer.variants[0][0], {"resident_MB": resident / 1e6})


def _command(trial: Trial, peer: Peer, workload: Workload, variant: str) -> Sequence[object]:
    counts, sizes = peer.counts, trial.sizes
    match workload:
        case Workload.KIB:
            return "append", variant, KIB_BYTES, counts.kib, KIB_OUTSTANDING
        case Workload.SMALL:
            return "append", variant, SMALL_BYTES, counts.small, peer.small_outstanding
        case Workload.SINGLE:
            return "append", variant, KIB_BYTES, counts.single, 1
        case _:
            rate, warm_up_s = OPEN_PER_S, sizes.open_warm_up_s
            return "open", variant, KIB_BYTES, rate, sizes.open_s, 0.0, warm_up_s
