"""Scrapes of a real cluster have the metrics that dashboards and alerts name."""

import asyncio
import re
from pathlib import Path

import aiohttp

from quire.console.options import ConsoleOptions
from quire.local_cluster import LocalCluster
from tests.monitoring.test_monitoring import NAME, REGEXP, queries, recorded
from tests.support.quire.console import Browser, open_console
from tests.unit.quire.console.test_cluster_pages import first_check

REPORTED = "quire_cluster_repair_ledgers"
LOOKS_MAX = 120
TYPE = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)


def series_of(scrape: str) -> set[str]:
    """Return the names of the series in a scrape, also of those without a sample yet."""
    found = set[str]()
    for name, kind in TYPE.findall(scrape):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + end for end in ends}
    return found


async def metrics_with_repair(browser: Browser) -> str:
    """Return the console's metrics as soon as the auditor has reported."""
    for _ in range(LOOKS_MAX):
        text = (await browser.get("/metrics")).text
        if REPORTED in text:
            return text
        await asyncio.sleep(0.5)
    raise AssertionError("the auditor has not reported")


async def test_metrics_of_a_real_cluster(tmp_path: Path) -> None:
    async with LocalCluster(3, tmp_path / "data", broker=1) as cluster:
        urls = [f"{bookie.admin_url}/metrics" for bookie in (*cluster.bookies, *cluster.brokers)]
        options = ConsoleOptions(metadata=cluster.metadata_uri, port=0)
        async with open_console(options) as (_, browser), aiohttp.ClientSession() as session:
            await first_check(browser)
            scrapes = [await metrics_with_repair(browser)]
            for url in urls:
                async with session.get(url) as answer:
                    scrapes.append(await answer.text())
    scraped = set[str]().union(*map(series_of, scrapes))
    wanted = {name for query in queries() for name in NAME.findall(REGEXP.sub("", query))}
    assert wanted - recorded() - scraped == set()
