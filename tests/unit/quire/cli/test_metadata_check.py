"""`quire metadata compare` with bookies whose admin servers are replaced by values."""

import pytest

from metadata.ids import LedgerId
from quire.cli.metadata import DELETED, MOVED, NOT_CLOSED, UNKNOWN
from quire.cli.metadata_verbs import parser
from quire.errors import ExitCode
from quire.identity.client_file import NO_IDENTITY, ClientFile
from quire.operate import held_ledgers
from quire.operate.admin_api import AdminApiError, AdminNotFoundError
from quire.operate.fields import Json
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger

HELD = {7: [(0, 9)], 8: [(0, 4), (6, 6)], 9: [(0, 1)], 10: [], 11: [(0, 0)], 12: [(0, 0)]}
"""Entries that bookie d holds, by ledger."""


class Admin:
    """The admin server of bookie d; every other one holds nothing."""

    def __init__(self) -> None:
        self.answering = "d"
        self.is_up = True

    async def get(self, url: str, identity: ClientFile) -> Json:
        """Answer a request as the admin server does, in pages of two ledgers."""
        assert identity == NO_IDENTITY
        if not self.is_up:
            raise AdminApiError(f"{url} did not respond")
        path = url.removeprefix("http://admin-d")
        if path == "/api/v1/state":
            return {"id": self.answering}
        if path.endswith("/entries"):
            ranges = HELD[int(path.split("/")[4])]
            if not ranges:
                raise AdminNotFoundError(f"{url} returned status 404: b''")
            return {"ranges": [list(range_) for range_ in ranges]}
        after = int(path.partition("after=")[2].partition("&")[0])
        page = [each for each in HELD if each > after][:2]
        more = {"next_after": page[-1]} if page[-1:] != [max(HELD)] else {}
        return {"ledgers": page, **more}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(held_ledgers, "get_json", made.get)
    return made


async def test_each_ledger_that_does_not_name_its_holder_is_listed(
    memory_cluster: MemoryCluster, admin: Admin
) -> None:
    cluster = memory_cluster
    await cluster.create()
    await cluster.format("d")
    await cluster.start("d", admin_url="http://admin-d")
    await cluster.add(
        closed_ledger("abd", ledger_id=7),
        closed_ledger("abc", ledger_id=8),
        open_ledger("abc", ledger_id=9),
        closed_ledger("abc", ledger_id=10),  # released
        closed_ledger("abc", ledger_id=12),
    )
    await cluster.ledgers.delete(LedgerId(12))
    code, row = await cluster.run(parser(), "compare", "-o", "json")
    assert (code, row["not_compared"]) == (ExitCode.FINDINGS, [])
    found = {each["ledger"]: each for each in row["findings"]}
    assert {ledger: each["what"] for ledger, each in found.items()} == {
        8: MOVED.what,
        9: NOT_CLOSED.what,
        11: UNKNOWN.what,
        12: DELETED.what,
    }
    assert (found[8]["entries"], found[8]["last_entry_id"]) == (6, 6)
    _, text = await cluster.text(parser(), "compare")
    assert text.startswith("1 bookies are up: 4 findings")


async def test_a_bookie_that_cannot_be_compared_is_named(
    memory_cluster: MemoryCluster, admin: Admin
) -> None:
    cluster = memory_cluster
    await cluster.create()
    await cluster.format("away")
    await cluster.start("d", admin_url="http://admin-d")
    admin.answering = "e"
    code, row = await cluster.run(parser(), "compare", "-o", "json")
    assert (code, row["findings"]) == (ExitCode.FINDINGS, [])
    assert row["not_compared"][0] == "away: it is down"
    assert "bookie e answers" in row["not_compared"][1]
    admin.is_up = False
    _, text = await cluster.text(parser(), "compare")
    assert "not compared: d: http://admin-d" in text
