"""Pages of repair, over metadata in memory."""

from metadata.ids import LedgerId
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.settings_store import RepairSettingsStore
from quire.console.options import ConsoleOptions
from quire.console.templating import ROWS_PER_PAGE
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import CREATED_MS, MemoryCluster
from tests.support.sample_ledgers import closed_ledger

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0, allow_writes=True)


async def test_jobs_are_listed_page_by_page(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    jobs = JobStore(memory_cluster.store, memory_cluster.rng)
    for number in range(ROWS_PER_PAGE + 1):
        blocked = "no <room>" if number == 0 else ""
        state = JobState.BLOCKED if blocked else JobState.QUEUED
        name = JobName(2, 10, LedgerId(number))
        await jobs.publish(Job(name, ("lacks a copy",), CREATED_MS, state, blocked))
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        text = (await browser.get("/repair/jobs")).text
        assert "no &lt;room&gt;" in text
        assert f"/repair/jobs?from={ROWS_PER_PAGE}" in text
        text = (await browser.get(f"/repair/jobs?from={ROWS_PER_PAGE}")).text
        assert f"/ledgers/{ROWS_PER_PAGE}" in text
        assert 'rel="next"' not in text
        assert "no job here" in (await browser.get("/repair/jobs?from=100000")).text
        assert "101 published jobs" in (await browser.get("/repair")).text


async def test_repair_is_paused_resumed_and_requested(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(closed_ledger("abc", ledger_id=7))
    settings = RepairSettingsStore(memory_cluster.store, memory_cluster.rng)
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        token = {"form_token": (await browser.get("/repair")).form_token}
        assert (await browser.post("/repair/pause", {**token, "minutes": "x"})).status == 400
        assert (await settings.get()).paused_until_ms == 0
        answer = await browser.post("/repair/pause", {**token, "minutes": "30"})
        assert (answer.status, answer.headers["Location"]) == (303, "/repair")
        assert (await settings.get()).paused_until_ms > 0
        assert "/repair/resume" in (await browser.get("/repair")).text
        assert (await browser.post("/repair/resume", token)).status == 303
        assert (await settings.get()).paused_until_ms == 0
        answer = await browser.post("/repair/run", {**token, "ledger": "7"})
        assert (answer.status, answer.headers["Location"]) == (303, "/repair/jobs")
        assert 'href="/ledgers/7"' in (await browser.get("/repair/jobs")).text
        assert (await browser.post("/repair/run", {**token, "ledger": "8"})).status == 404
        assert (await browser.post("/repair/run", {**token, "ledger": "x"})).status == 400


async def test_bookies_that_are_away_have_links(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    await memory_cluster.format("b")
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        assert 'href="/bookies/b"' in (await browser.get("/repair")).text
