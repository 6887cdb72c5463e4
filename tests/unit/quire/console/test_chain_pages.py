"""Pages of chains, over metadata in memory."""

from metadata.ledgers.chain import LinkedLedger
from metadata.ledgers.chain_store import ChainStore, Publication
from quire.console.options import ConsoleOptions
from quire.console.templating import ROWS_PER_PAGE
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import CREATED_MS, MemoryCluster
from tests.support.sample_ledgers import closed_ledger

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0)
HOSTILE = "<script>"


async def test_a_chain_is_shown_from_its_newest_link(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    ledger = closed_ledger("abc", ledger_id=7)
    await memory_cluster.add(ledger)
    chains = ChainStore(memory_cluster.store, memory_cluster.rng, lambda: CREATED_MS)
    await chains.create("nightly")
    await chains.create("empty")
    linked = LinkedLedger(ledger.ledger_id, ledger.created_ms, ledger.last_entry_id, ledger.length)
    for batch in range(ROWS_PER_PAGE + 2):
        await chains.publish("nightly", Publication((linked,), HOSTILE, batch))
    await chains.trim("nightly", 1)
    async with open_console(OPTIONS) as (_, browser):
        text = (await browser.get("/chains")).text
        assert 'href="/chains/nightly"' in text
        assert 'href="/chains/empty"' in text
        assert f'<td class="number">{ROWS_PER_PAGE + 1}</td>' in text
        text = (await browser.get("/chains/nightly")).text
        assert HOSTILE not in text.replace('<script src="', "")
        assert text.count('href="/ledgers/7"') == ROWS_PER_PAGE
        assert "after 1 that were trimmed" in text
        assert "/chains/nightly?before=2" in text
        text = (await browser.get("/chains/nightly?before=2")).text
        assert text.count('href="/ledgers/7"') == 1
        assert 'rel="next"' not in text
        assert "No link is here" in (await browser.get("/chains/empty")).text
        for unknown in ("none", "a%20b"):
            assert (await browser.get(f"/chains/{unknown}")).status == 404


async def test_no_chain(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    async with open_console(OPTIONS) as (_, browser):
        assert "quire chain create" in (await browser.get("/chains")).text
