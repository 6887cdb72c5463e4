"""Page of a bookie, and its changes, over metadata in memory."""

import pytest
from aiohttp import web

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from quire.console.options import ConsoleOptions
from quire.console.pages import bookie_page
from quire.operate import ledger_pass
from tests.support.quire.console import Browser, open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0, allow_writes=True)
HISTOGRAM = "quire_bookie_storage_sync_latency_seconds"
METRICS = f"""# TYPE {HISTOGRAM} histogram
{HISTOGRAM}_bucket{{le="0.001"}} 90
{HISTOGRAM}_bucket{{le="0.01"}} 100
{HISTOGRAM}_bucket{{le="+Inf"}} 100
{HISTOGRAM}_sum 0.2
{HISTOGRAM}_count 100
"""


async def change(browser: Browser, bookie: str, act: str, **fields: str) -> int:
    """Confirm a change on its page; return the status of the answer."""
    page = await browser.get(f"/bookies/{bookie}/change?act={act}")
    assert page.status == 200, page.text
    form = {"form_token": page.form_token, "act": act, **fields}
    answer = await browser.post(f"/bookies/{bookie}/change", form)
    if answer.status == 303:
        assert answer.headers["Location"] == f"/bookies/{bookie}"
    return answer.status


async def test_a_bookie_is_drained_used_again_and_removed(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c", "d")
    await cluster.add(closed_ledger("abc", ledger_id=7))
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        page = await browser.get("/bookies/a/change?act=drain")
        assert "Ledgers that name it" in page.text
        assert '<th scope="row">d</th>' in page.text
        assert await change(browser, "a", "drain", reason="old <b>disk</b>") == 303
        record = await cluster.lifecycles.get(BookieId("a"))
        assert (record.state, record.reason) == (Lifecycle.DRAINING, "old <b>disk</b>")
        text = (await browser.get("/bookies/a")).text
        assert "old &lt;b&gt;disk&lt;/b&gt;" in text
        assert await change(browser, "a", "undrain") == 303
        assert (await cluster.lifecycles.get(BookieId("a"))).state is Lifecycle.ACTIVE


async def test_a_lost_bookie_is_removed_when_nothing_names_it(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c", "d")
    await cluster.add(closed_ledger("abc", ledger_id=7))
    await cluster.stop("a")
    await cluster.stop("d")
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        text = (await browser.get("/bookies/a")).text
        assert "it counts as" in text
        assert "act=remove" not in text
        await cluster.set_state("a", Lifecycle.LOST)
        await cluster.set_state("d", Lifecycle.LOST)
        assert "act=remove" in (await browser.get("/bookies/a")).text
        page = await browser.get("/bookies/a/change?act=remove")
        assert "1 ledger still name" in page.text
        answer = await browser.post(
            "/bookies/a/change", {"form_token": page.form_token, "act": "remove"}
        )
        assert answer.status == 409
        assert "ledgers that name it: 1" in answer.text
        assert (await cluster.lifecycles.get(BookieId("a"))).state is Lifecycle.LOST
        assert "No ledger names it" in (await browser.get("/bookies/d/change?act=remove")).text
        assert await change(browser, "d", "remove") == 303
        assert (await cluster.lifecycles.get(BookieId("d"))).state is Lifecycle.REMOVED
        assert (await browser.get("/bookies/d")).status == 200


async def test_what_is_unknown_or_not_possible(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        assert (await browser.get("/bookies/zz")).status == 404
        assert (await browser.get("/bookies/a/change?act=remove")).status == 400
        assert (await browser.get("/bookies/a/change?act=x")).status == 400
        page = await browser.get("/bookies/a/change?act=drain")
        for fields in ({}, {"act": "x"}):
            form = {"form_token": page.form_token, **fields}
            assert (await browser.post("/bookies/a/change", form)).status == 400
        form = {"form_token": page.form_token, "act": "drain"}
        assert (await browser.post("/bookies/zz/change", form)).status == 404
        form = {"form_token": page.form_token, "act": "read-only"}
        assert (await browser.post("/bookies/a/change", form)).status == 503


async def test_a_plan_of_a_large_cluster_says_that_it_is_partial(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookie_page, "PLAN_S_MAX", 0.0)
    monkeypatch.setattr(ledger_pass, "READS_AT_ONCE", 2)
    await memory_cluster.create("a", "b", "c", "d")
    for number in range(5):
        await memory_cluster.add(closed_ledger("abc", ledger_id=number))
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        text = (await browser.get("/bookies/a/change?act=drain")).text
        assert "covers the first 2 ledgers only" in text


async def test_a_bookie_reports_its_figures_and_is_made_read_only(
    memory_cluster: MemoryCluster,
) -> None:
    asked: list[object] = []

    async def state(_: web.Request) -> web.Response:
        condition = {"reason": "limbo", "detail": "lost <data>", "lasts_s": 5, "try_next": "x ID"}
        answer = {"conditions": [condition], "storage": {"queue_bytes": 2_000, "syncs": "?"}}
        return web.json_response(answer)

    async def ledgers(request: web.Request) -> web.Response:
        first = int(request.query["after"]) + 1
        return web.json_response({"ledgers": [first, first + 1], "next_after": first + 1})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    async def read_only(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"read_only": True})

    application = web.Application()
    application.router.add_get("/api/v1/state", state)
    application.router.add_get("/api/v1/ledgers", ledgers)
    application.router.add_get("/metrics", metrics)
    application.router.add_post("/api/v1/read-only", read_only)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await memory_cluster.create()
    await memory_cluster.format("a")
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await memory_cluster.start("a", admin_url=url)
    bad = BadRange(LedgerId(3), EntryId(4), EntryId(6))
    scrubs = ScrubStore(memory_cluster.store, memory_cluster.rng)
    await scrubs.put(BookieId("a"), ScrubRecord(bad=(bad,)))
    try:
        async with open_console(OPTIONS) as (_, browser):
            await browser.log_in()
            text = (await browser.get("/bookies/a")).text
            for wanted in (">2 ms<", "10 ms", "lost &lt;data&gt;", "x a", "3 stored entries"):
                assert wanted in text, wanted
            assert "/bookies/a?from=2" in text
            assert "/ledgers/2" in (await browser.get("/bookies/a?from=2")).text
            assert await change(browser, "a", "read-only") == 303
            assert asked == [{"read_only": True}]
    finally:
        await runner.cleanup()


async def test_a_bookie_that_does_not_answer_is_shown(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    await memory_cluster.format("a")
    await memory_cluster.start("a", admin_url="http://127.0.0.1:1")
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        answer = await browser.get("/bookies/a")
    assert answer.status == 200
    assert "does not answer" in answer.text
