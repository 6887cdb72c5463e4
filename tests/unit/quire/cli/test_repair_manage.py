"""Verbs of `quire repair`."""

import asyncio
import io
from dataclasses import asdict, replace
from random import Random
from typing import Any

import pytest

from ledger_client.cluster_access import wall_clock_ms
from ledger_client.errors import LedgerNotFoundError
from metadata.errors import InvalidRepairSettingError
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.paths import repair_claim_path
from metadata.repair.auditor_election import AuditorElection
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JOB_KIND, JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import DEFAULTS
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status import BlockedTotal, RepairStatus, UrgencyTotal
from metadata.repair.status_store import StatusStore
from metadata.repair.workers import WorkerRegistrar
from quire.cli import repair as repair_manage
from quire.cli.output import Output
from quire.cli.repair import ScrubOffError
from quire.cli.repair_verbs import parser
from quire.errors import UsageError, exit_code
from quire.operate import repair as repair_jobs
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.repair import TooManyJobsError
from quire.repair.publishing import REQUESTED
from quire.server.overriding import override
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger
from tests.until import until

LATE = Job(JobName(3, 50, LedgerId(1)), ("copies on a draining bookie",), 5)
BLOCKED = Job(JobName(2, 10, LedgerId(2)), (), 5, JobState.BLOCKED, "needs 4 bookies, has 3")
LOST = Job(JobName(9, 10, LedgerId(3)), (), 5, JobState.LOST, "no copy is left")


async def test_jobs_are_listed_in_their_order(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert rows == []
    jobs = JobStore(cluster.store, Random(1))
    for job in (LOST, LATE, BLOCKED):
        await jobs.publish(job)
    held = await ClaimStore(cluster.store, Random(1)).claim(LedgerId(1), "w", 5)
    assert held is not None
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert [row["ledger"] for row in rows] == [2, 1, 3]
    assert rows[0] == {
        "ledger": 2,
        "class": 2,
        "what": "fewer good copies than the write quorum",
        "state": "blocked",
        "bytes": 10,
        "since_ms": 5,
        "worker": None,
        "copied_bytes": None,
        "reasons": [],
        "blocked_reason": "needs 4 bookies, has 3",
    }
    assert rows[1]["worker"] == "w"
    for words, ledgers in ((("--blocked",), [2]), (("--lost",), [3]), (("--class", "3"), [1])):
        _, rows = await cluster.run(parser(), "list", *words, "-o", "json")
        assert [row["ledger"] for row in rows] == ledgers
    await held.release()


async def test_an_operator_requests_ledgers(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    await cluster.add(closed_ledger("abc", ledger_id=4, length=77), open_ledger("abc", ledger_id=5))
    _, rows = await cluster.run(parser(), "run", "5", "4", "4", "-o", "json")
    assert rows == [{"ledger": 5, "published": True}, {"ledger": 4, "published": True}]
    jobs = JobStore(cluster.store, Random(1))
    names = [JobName(0, 0, LedgerId(5)), JobName(0, 77, LedgerId(4))]
    assert await jobs.published() == names
    job, version = await jobs.get(names[1])
    assert (job.reasons, job.state, version) == ((REQUESTED,), JobState.QUEUED, 0)
    _, rows = await cluster.run(parser(), "run", "4", "-o", "json")
    assert rows == [{"ledger": 4, "published": False}]
    with pytest.raises(LedgerNotFoundError):
        await cluster.run(parser(), "run", "4", "6", "-o", "json")


async def test_a_blocked_job_is_queued_again_by_a_request(memory_cluster: MemoryCluster) -> None:
    """The job of a ledger with one copy left may have the name of a request."""
    cluster = memory_cluster
    await cluster.create("a")
    await cluster.add(closed_ledger("abc", ledger_id=4, length=77))
    jobs = JobStore(cluster.store, Random(1))
    name = JobName(0, 77, LedgerId(4))
    await jobs.publish(Job(name, ("one copy left",), 5, JobState.BLOCKED, "needs 1 more bookie"))
    _, rows = await cluster.run(parser(), "run", "4", "-o", "json")
    assert rows == [{"ledger": 4, "published": True}]
    job, _ = await jobs.get(name)
    assert (job.state, job.reasons, job.blocked_reason) == (JobState.QUEUED, (REQUESTED,), "")


async def test_requests_are_limited(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_jobs, "JOBS_MAX", 0)
    monkeypatch.setattr(repair_jobs, "REQUESTS_MAX", 1)
    await memory_cluster.create("a")
    await memory_cluster.add(*(closed_ledger("abc", ledger_id=each) for each in (4, 5)))
    with pytest.raises(TooManyJobsError, match="0 jobs are published already: no job was added"):
        await memory_cluster.run(parser(), "run", "4", "5", "-o", "json")
    await memory_cluster.run(parser(), "run", "4", "-o", "json")
    with pytest.raises(TooManyJobsError):
        await memory_cluster.run(parser(), "run", "5", "-o", "json")


async def test_a_ledger_is_explained(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c")
    await cluster.add(closed_ledger("abc", ledger_id=4))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert (row["repair"], row["job"], row["class"]) == ("It needs no repair.", None, None)
    jobs = JobStore(cluster.store, Random(1))
    job = Job(JobName(0, 0, LedgerId(4)), (REQUESTED,), 5)
    await jobs.publish(job)
    blocked = replace(job, state=JobState.BLOCKED, blocked_reason="needs 4 bookies, has 3")
    await jobs.change(blocked, Version(0))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert row["repair"] == "Blocked: needs 4 bookies, has 3."
    assert row["job"]["state"] == "blocked"
    assert row["fragments"][0]["bookies"] == {"a": "up", "b": "up", "c": "up"}
    _, text = await cluster.text(parser(), "explain", "4")
    assert "FIRST ENTRY ID" in text
    assert "a=up, b=up, c=up" in text
    assert REQUESTED in text, "the reason of its job"
    assert "damaged" not in text
    with pytest.raises(LedgerNotFoundError):
        await cluster.run(parser(), "explain", "6", "-o", "json")


async def test_damaged_entries_without_a_job_are_explained(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c")
    await cluster.add(closed_ledger("abc", ledger_id=4))
    bad = (BadRange(LedgerId(4), EntryId(3), EntryId(4)),)
    await ScrubStore(cluster.store, Random(1)).put(BookieId("b"), ScrubRecord(bad=bad))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert (row["job"], row["class"]) == (None, 2)
    assert row["repair"].startswith("No auditor runs, so no job is published")
    assert row["damaged"] == [
        {
            "bookie": "b",
            "first_entry_id": 3,
            "last_entry_id": 4,
            "repair": "by a job, which is not published yet",
        }
    ]
    _, text = await cluster.text(parser(), "explain", "4")
    assert ["b", "3", "4", "by"] in [line.split()[:4] for line in text.splitlines()]


async def test_records_that_cannot_be_read_stop_no_list(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    for job in (LATE, BLOCKED):
        await JobStore(cluster.store, Random(1)).publish(job)
    version = (await cluster.store.get(JOB_KIND.path(LATE.name))).version
    await cluster.store.compare_and_set(JOB_KIND.path(LATE.name), b"\x91\x63", version)
    await cluster.store.create(repair_claim_path(LATE.ledger_id), b"\x91\x63")
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert [row["ledger"] for row in rows] == [2, 1]
    assert rows[1]["blocked_reason"].startswith("its record is unreadable: it has format version")
    assert rows[1]["worker"] == "unreadable"


NOW_MS = 1_700_000_000_000
A, B = BookieId("a"), BookieId("b")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_manage, "wall_clock_ms", lambda: NOW_MS)


async def test_scrubs_are_shown(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    bad = (BadRange(LedgerId(7), EntryId(3), EntryId(4)),)
    scrubs = ScrubStore(memory_cluster.store, memory_cluster.rng)
    await scrubs.put(B, ScrubRecord(ended_ms=NOW_MS - 5_000, bad=bad))
    _, rows = await memory_cluster.run(parser(), "scrub", "-o", "json")
    assert [(each["id"], each["scrub"], each["bad_entries"]) for each in rows] == [
        ("a", "none ended yet", 0),
        ("b", "ended 5 s ago", 2),
    ]
    assert rows[1]["bad_ranges"] == [[7, 3, 4]]
    _, text = await memory_cluster.text(parser(), "scrub", "b")
    assert "ended 5 s ago" in text
    assert "\na " not in text
    _, row = await memory_cluster.run(parser(), "status", "-o", "json")
    assert [each["id"] for each in row["scrubs"]] == ["b"]


async def test_all_bookies_are_scrubbed_at_once(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    _, rows = await memory_cluster.run(parser(), "scrub", "--now", "-o", "json")
    assert [row["scrub"] for row in rows] == ["requested, none ended yet"] * 2
    settings = await RepairSettingsStore(memory_cluster.store, memory_cluster.rng).get()
    assert settings.scrub_requested_ms == NOW_MS


async def test_one_bookie_is_scrubbed_at_once(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    await memory_cluster.run(parser(), "scrub", "--now", "b", "-o", "json")
    scrubs = ScrubStore(memory_cluster.store, memory_cluster.rng)
    assert await scrubs.get_all() == {B: ScrubRecord(requested_ms=NOW_MS)}
    settings = await RepairSettingsStore(memory_cluster.store, memory_cluster.rng).get()
    assert settings.scrub_requested_ms == 0


async def test_what_cannot_be_requested(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    with pytest.raises(NoSuchBookieError, match="no bookie c"):
        await memory_cluster.run(parser(), "scrub", "--now", "a", "c")
    settings = RepairSettingsStore(memory_cluster.store, memory_cluster.rng)
    await settings.change(scrub_bytes_per_s=0)
    with pytest.raises(ScrubOffError, match="scrubs are off"):
        await memory_cluster.run(parser(), "scrub", "--now")
    assert await ScrubStore(memory_cluster.store, memory_cluster.rng).get_all() == {}


async def test_the_throttle(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    _, row = await memory_cluster.run(parser(), "settings", "-o", "json")
    assert row == asdict(DEFAULTS)
    _, row = await memory_cluster.run(parser(), "throttle", "80MB/s", "-o", "json")
    assert row == asdict(DEFAULTS) | {"bytes_per_s": 80_000_000}
    limits = ("--per-bookie", "1MiB/s", "--per-source", "unlimited")
    _, row = await memory_cluster.run(parser(), "throttle", "2MiB/s", *limits, "-o", "json")
    assert row == asdict(DEFAULTS) | {
        "bytes_per_s": 2**21,
        "bookie_bytes_per_s": 2**20,
        "source_bytes_per_s": 0,
    }


async def test_a_pause_ends_by_itself(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_manage, "wall_clock_ms", lambda: NOW_MS)
    await memory_cluster.create()
    for words, minutes in ((("--for", "30m"), 30), ((), 60)):
        _, row = await memory_cluster.run(parser(), "pause", *words, "-o", "json")
        assert row["paused_until_ms"] == NOW_MS + minutes * 60_000
    _, row = await memory_cluster.run(parser(), "resume", "-o", "json")
    assert row["paused_until_ms"] == 0


async def test_any_setting_is_changed(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    words = ("settings", "lost_after_s=1800", "fragments_per_bookie=4", "-o", "json")
    _, row = await memory_cluster.run(parser(), *words)
    assert row == asdict(DEFAULTS) | {"lost_after_s": 1800, "fragments_per_bookie": 4}
    with pytest.raises(InvalidRepairSettingError) as raised:
        await memory_cluster.run(parser(), "settings", "speed=9", "-o", "json")
    assert exit_code(raised.value) == 2
    for word in ("lost_after_s", "lost_after_s=", "lost_after_s=-1", "lost_after_s=1h"):
        with pytest.raises(UsageError, match="write NAME=VALUE"):
            await memory_cluster.run(parser(), "settings", word, "-o", "json")


def test_a_wrong_rate_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["throttle", "fast"])
    assert ended.value.code == 2
    assert "'fast' is not a rate" in capsys.readouterr().err


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
    assert ["7", "w", "c", "512", "B", "2.0", "KiB", "25"] in [line[:8] for line in lines]
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
