"""`quire metadata dump`, `restore` and `accept-restore`."""

import json
from pathlib import Path
from random import Random

import pytest

from metadata.errors import DumpFormatError, NeverRestoredError, RootNotEmptyError
from metadata.restore.restore_record import is_unaccepted
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.cli import metadata as metadata_restore
from quire.cli.cluster import parser as cluster_parser
from quire.cli.metadata_verbs import parser
from quire.errors import ExitCode, NeedsConsentError, UsageError, exit_code
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger


@pytest.fixture
async def dump(memory_cluster: MemoryCluster, tmp_path: Path) -> Path:
    """Return a file with the dump of a cluster with two ledgers."""
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(closed_ledger("abc"), open_ledger("abc", ledger_id=8))
    code, text = await memory_cluster.text(parser(), "dump")
    assert code == ExitCode.DONE
    file = tmp_path / "metadata.dump"
    file.write_text(text)
    return file


@pytest.fixture
def empty(memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Replace the cluster's service by an empty one, to which commands connect."""
    memory_cluster.server.tree = MemoryMetadataServer().tree

    async def open_store(_address: str, *, rng: Random) -> MemoryMetadataStore:
        assert rng is not memory_cluster.rng
        return MemoryMetadataStore(memory_cluster.server)

    monkeypatch.setattr(metadata_restore, "open_store", open_store)
    return memory_cluster


def test_a_dump_says_what_its_nodes_are(dump: Path) -> None:
    rows = [json.loads(line) for line in dump.read_text().splitlines()]
    assert rows[0]["kind"] == "dump"
    assert rows[-1]["kind"] == "end"
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("cookie"), kinds.count("ledger"), kinds.count("instance")) == (3, 2, 1)
    ledgers = {row["ledger_id"]: row for row in rows if row["kind"] == "ledger"}
    assert (ledgers[7]["state"], ledgers[8]["state"]) == ("closed", "open")


async def test_a_dump_is_restored_and_accepted(dump: Path, empty: MemoryCluster) -> None:
    code, row = await empty.run(parser(), "restore", str(dump), "--yes", "-o", "json")
    assert (code, row["node_count"]) == (ExitCode.DONE, len(dump.read_text().splitlines()) - 2)
    _, health = await empty.run(cluster_parser(), "health", "-o", "json")
    assert "metadata" in [each["where"] for each in health["warnings"]]
    assert await is_unaccepted(empty.store)
    with pytest.raises(NeedsConsentError):
        await empty.run(parser(), "accept-restore", "-o", "json")
    assert await is_unaccepted(empty.store)
    _, row = await empty.run(parser(), "accept-restore", "--yes", "-o", "json")
    assert row["accepted"] is True
    _, health = await empty.run(cluster_parser(), "health", "-o", "json")
    assert "metadata" not in [each["where"] for each in health["warnings"]]


async def test_without_consent_the_file_is_checked_and_nothing_is_written(
    dump: Path, empty: MemoryCluster
) -> None:
    with pytest.raises(NeedsConsentError, match="this would write"):
        await empty.run(parser(), "restore", str(dump))
    assert await empty.store.children("/") == []


async def test_what_cannot_be_restored_is_refused(dump: Path, empty: MemoryCluster) -> None:
    with pytest.raises(UsageError, match="cannot open"):
        await empty.run(parser(), "restore", f"{dump}.missing", "--yes")
    short = dump.with_name("short.dump")
    short.write_text("".join(dump.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DumpFormatError) as found:
        await empty.run(parser(), "restore", str(short), "--yes")
    assert exit_code(found.value) == ExitCode.DAMAGED
    await empty.create()
    with pytest.raises(RootNotEmptyError) as refused:
        await empty.run(parser(), "restore", str(dump), "--yes")
    assert exit_code(refused.value) == ExitCode.REFUSED
    with pytest.raises(NeverRestoredError):
        await empty.run(parser(), "accept-restore", "--yes")
