"""A byte of a running bookie's disk is damaged, found by a scrub, and repaired by the cluster."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ledger_client import LedgerClient
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.support.ledger_client.cluster import THREE, entries_of

COUNT = 200
PATIENCE_S = 150.0

pytestmark = pytest.mark.long


def flip_byte(data_dir: Path, payload: bytes) -> None:
    """Change a byte of a payload in a segment of a running bookie."""
    for segment in sorted((data_dir / "log").glob("*.log")):
        offset = segment.read_bytes().find(payload)
        if offset >= 0:
            with segment.open("r+b") as file:
                file.seek(offset)
                file.write(b"?")
            return
    raise AssertionError(payload)


async def quire(cluster: LocalCluster, *words: str) -> tuple[int, str]:
    done = await asyncio.to_thread(run_quire, *words, metadata=cluster.metadata_uri)
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_a_damaged_byte_is_found_and_repaired(tmp_path: Path) -> None:
    async with LocalCluster(3, tmp_path) as cluster, LedgerClient(cluster.metadata_uri) as client:
        async with client.create_ledger(THREE) as writer:
            for number in range(COUNT):
                await writer.append(b"payload %04d of the ledger" % number)
        bad = cluster.bookies[1]
        flip_byte(Path(bad.data_dir), b"payload 0123 of")
        code, text = await quire(cluster, "repair", "scrub", "--now")
        assert (code, "requested" in text or "under way" in text or "ended" in text) == (0, True)
        line = await wait_for_log(tmp_path / "logs" / f"{bad.name}.log", "entries damaged")
        assert (line["ranges"], line["entries"]) == (1, 1), "only the damaged record"
        assert line["first"] == [writer.id, 123, 123]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, text = await quire(cluster, "repair", "scrub", bad.id, "-o", "json")
                if '"bad_entries": 0' in text and "ended" in text:
                    break
                await asyncio.sleep(0.5)

        await bad.restart()  # it has nothing but its disk
        code, text = await quire(cluster, "ledger", "verify", str(writer.id))
        assert code == 0, text
        expected = [b"payload %04d of the ledger" % number for number in range(COUNT)]
        assert await entries_of(client, writer.id, COUNT - 1) == expected


async def wait_for_log(path: Path, event: str) -> dict[str, Any]:
    """Wait for a line of a bookie's log; return its fields."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [line for line in path.read_text().splitlines() if event in line]
            if found:
                return dict(json.loads(found[0]))
            await asyncio.sleep(0.2)
