"""Addresses of all pages of a console over the sample cluster.

Leaves the routes to `quire.console.server`: `test_every_page` compares this list with them.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from quire.console.pages.groups_page import GROUP_PATH
from tests.browser.hostile_names import HOSTILE
from tests.browser.sample_cluster import CHAIN, GROUP, TOPIC, TRANSACTION, SampleCluster

STREAMS: Final = ("/ledgers/{ledger_id}/tail", "/topics/{topic}/live")
FILES: Final = ("/static/{name}", "/reports/style.css")
NOT_HTML: Final = ("/metrics", "/livez", "/readyz", *FILES, *STREAMS)
"""Routes whose answers are no pages."""

REPORT: Final = "first"
"""Name of the report that the consoles list."""


def page_list(sample: SampleCluster) -> Sequence[tuple[str, str]]:
    """Return routes with an address of each, with what they show at their fullest."""
    bookie = sample.cluster.bookies[0].id
    ledger, topic, group = "/ledgers/{ledger_id}", f"/topics/{TOPIC}", f"/groups/{GROUP}"
    hostile_group = f"/groups/{quote(HOSTILE[0], safe='')}"
    return (
        ("/", "/"),
        ("/if-lost", f"/if-lost?bookie={bookie}"),
        ("/ledgers", "/ledgers"),
        ("/ledgers", "/ledgers?metadata=job%3Dnightly-export"),
        (ledger, f"/ledgers/{sample.changed}?fragment=0&from=0"),
        (ledger, f"/ledgers/{sample.short}?fragment=0&from=0&as=json"),
        (ledger, f"/ledgers/{sample.striped}?fragment=0&from=0&as=hex"),
        (ledger, f"/ledgers/{sample.hostile}?from=0"),
        (ledger, f"/ledgers/{sample.locked}?from=0"),
        ("/chains", "/chains"),
        ("/chains/{chain}", f"/chains/{CHAIN}"),
        ("/repair", "/repair"),
        ("/repair/jobs", "/repair/jobs"),
        ("/bookies/{bookie}", f"/bookies/{bookie}"),
        ("/bookies/{bookie}/change", f"/bookies/{bookie}/change?act=drain"),
        ("/topics", "/topics"),
        ("/topics/{topic}", topic),
        ("/topics/{topic}/messages", f"{topic}/messages?partition=2"),
        ("/groups", "/groups"),
        (GROUP_PATH, group),
        (GROUP_PATH, hostile_group),
        (f"{GROUP_PATH}/reset", f"{group}/reset?topic={TOPIC}&to=earliest"),
        ("/transactions", "/transactions?seconds=0"),
        ("/transactions/abort", f"/transactions/abort?id={quote(TRANSACTION, safe='')}"),
        ("/reports", "/reports"),
        ("/reports/{name}", f"/reports/{REPORT}"),
        ("/login", "/login"),
    )
