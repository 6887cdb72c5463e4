"""The state of repair, for people and for programs."""

import asyncio
import io
from random import Random
from typing import Any

import pytest

from ledger_client.cluster_access import wall_clock_ms
from metadata.ids import LedgerId
from metadata.paths import repair_claim_path
from metadata.repair.auditor_election import AuditorElection
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobName
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.status import BlockedTotal, RepairStatus, UrgencyTotal
from metadata.repair.status_store import StatusStore
from metadata.repair.workers import WorkerRegistrar
from quire.cli.output import Output
from quire.cli.repair.verbs import parser
from quire.server.overriding import override
from tests.support.quire.memory_cluster import MemoryCluster
from tests.until import until


async def test_a_cluster_without_an_auditor(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    code, row = await memory_cluster.run(parser(), "status", "-o", "json")
    assert (code, row["auditor"], row["workers"]) == (0, None, [])
    assert row["state"].startswith("No auditor runs")
    _, text = await memory_cluster.text(parser(), "status")
    assert "bytes per s max         47.7 MiB/s\n" in text


async def test_everything_that_is_known_is_shown(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    store, rng, now_ms = cluster.store, Random(1), wall_clock_ms()
    await cluster.create("a", "b")
    await cluster.set_state("b", Lifecycle.DRAINING)
    election = AuditorElection(store, "a", rng)
    await election.start()
    await until(lambda: election.is_auditor)
    worker = WorkerRegistrar(store, "w", rng)
    await worker.start()
    held = await ClaimStore(store, rng).claim(LedgerId(7), "w", now_ms - 512_000)
    assert held is not None
    reported = asyncio.Event()
    store.watch_value(repair_claim_path(LedgerId(7)), reported.set)
    held.report(512, 2048, "c")
    await reported.wait()
    status = RepairStatus(
        "a",
        now_ms,
        now_ms,
        now_ms,
        totals=(UrgencyTotal(3, 41, 2048),),
        bytes_left=2048,
        blocked=(BlockedTotal("needs 3 bookies, has 2", 9),),
    )
    await StatusStore(store, rng).put(status)
    _, row = await cluster.run(parser(), "status", "-o", "json")
    assert (row["auditor"], row["workers"]) == ("a", ["w"])
    assert (row["ledgers_left"], row["eta_s"]) == (41, 1536)
    assert row["state"] == (
        "Repairing: 41 ledgers to repair, 2.0 KiB (512 B copied), about 26 min left, 9 blocked: "
        "needs 3 bookies, has 2 (9 ledgers)."
    )
    assert [(each["ledger"], each["worker"]) for each in row["claims"]] == [(7, "w")]
    assert [(each["id"], each["lifecycle"]) for each in row["bookies"]] == [("b", "draining")]
    _, text = await cluster.text(parser(), "status")
    lines = [line.split() for line in text.splitlines()]
    assert ["CLASS", "WHAT", "LEDGERS", "BYTES"] in lines
    assert ["3", "copies", "on", "draining", "bookies", "41", "2.0", "KiB"] in lines
    assert ["7", "w", "c", "512", "B", "2.0", "KiB", "25"] in [each[:8] for each in lines]
    assert ["b", "draining", "for", "a", "test", "wait:", "quire"] in [e[:7] for e in lines]
    await held.release()
    await worker.aclose()
    await election.aclose()


async def test_a_bookie_that_is_away_is_named(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    store, rng, now_ms = cluster.store, Random(1), wall_clock_ms()
    await cluster.create("a", "b")
    await cluster.stop("b")
    election = AuditorElection(store, "a", rng)
    await election.start()
    await until(lambda: election.is_auditor)
    await StatusStore(store, rng).put(RepairStatus("a", now_ms, now_ms, now_ms))
    _, row = await cluster.run(parser(), "status", "-o", "json")
    assert row["state"].startswith("Nothing to repair now; b is away: it counts as lost 10 min")
    assert [each["id"] for each in row["away"]] == ["b"]
    await JobStore(store, rng).publish(Job(JobName(2, 0, LedgerId(7)), (), now_ms))
    _, row = await cluster.run(parser(), "status", "-o", "json")
    assert row["state"].startswith("Repairing: 1 ledger to repair")
    await election.aclose()


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
async def test_the_state_is_shown_until_interrupted(
    memory_cluster: MemoryCluster, stream: Any
) -> None:
    await memory_cluster.create("a")
    arguments = parser().parse_args(["status", "--watch", "--interval", "1"])
    results = stream()
    output = Output(as_json=False, results=results, remarks=io.StringIO())
    task = asyncio.ensure_future(arguments.handler(arguments, output))
    await until(lambda: results.getvalue().count("No auditor runs") == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert results.getvalue().startswith("\x1b[H\x1b[2J") == results.isatty()
