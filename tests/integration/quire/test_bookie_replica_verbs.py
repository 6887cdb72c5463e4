"""Tests of `quire bookie entry|compare` on a cluster of processes with a damaged replica."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ledger_client import LedgerClient, LedgerInfo, Quorum
from quire.errors import ExitCode
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import pause_repair, run_quire

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = b"a longer password"
NO_LEDGER = 123_456


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start two bookies, for all of the module's tests."""
    async with LocalCluster(2) as running:
        yield running


async def write(cluster: LocalCluster, entries: list[bytes], password: bytes = b"") -> LedgerInfo:
    """Write a closed ledger to both bookies, one entry in each batch."""
    async with LedgerClient(cluster.metadata_uri) as client:
        digest = "hmac-sha256" if password else "crc32c"
        ledger = await client.create_ledger(Quorum.all(2), digest=digest, password=password)
        for entry in entries:
            await ledger.append(entry)
        await ledger.aclose()
        return ledger.info


def run(cluster: LocalCluster, *words: str) -> tuple[int, bytes, str]:
    done = run_quire("bookie", *words, metadata=cluster.metadata_uri)
    return done.returncode, done.stdout, done.stderr.decode()


def flip(bookie: LocalBookie, payload: bytes) -> None:
    """Flip a bit of a payload at every place in the log of a stopped bookie."""
    flipped = 0
    for path in sorted((bookie.data_dir / "log").iterdir()):
        data = bytearray(path.read_bytes())
        at = data.find(payload)
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            flipped += 1
    assert flipped == 1


@pytest.mark.long
async def test_one_replica_that_is_damaged_is_found_by_entry_and_compare(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    entries = [f"entry number {number}".encode() for number in range(6)]
    ledger = await write(cluster, entries)
    pause_repair(cluster.metadata_uri)
    a, b = cluster.bookies
    await b.stop()
    status, _, told = run(cluster, "entry", b.id, str(ledger.id), "3")
    assert status == ExitCode.UNAVAILABLE
    assert "is not up" in told
    flip(b, entries[3])
    await b.start()

    status, answer, _ = run(cluster, "entry", a.id, str(ledger.id), "3", "-o", "json")
    assert status == ExitCode.DONE
    found = json.loads(answer)
    assert (found["data"], found["verdict"]) == ("entry number 3", "valid")
    assert (found["batch_first"], found["batch_last"], found["bytes"]) == (3, 3, 14)
    payload = tmp_path / "payload"
    assert run(cluster, "entry", a.id, str(ledger.id), "4", "--to", str(payload))[0] == 0
    assert payload.read_bytes() == entries[4]
    assert run(cluster, "entry", b.id, str(ledger.id), "4", "--raw")[:2] == (0, entries[4])

    status, answer, told = run(cluster, "entry", b.id, str(ledger.id), "3")
    assert (status, answer) == (ExitCode.DAMAGED, b"")
    assert "its copy is damaged" in told

    status, answer, _ = run(cluster, "compare", a.id, b.id, str(ledger.id), "-o", "json")
    assert status == ExitCode.FINDINGS
    rows = json.loads(answer)
    assert [(row["first"], row["last"], row["verdict"]) for row in rows] == [
        (0, 2, "equal"),
        (3, 3, "unreadable-b"),
        (4, 5, "equal"),
    ]
    assert run(cluster, "compare", a.id, a.id, str(ledger.id))[0] == ExitCode.USAGE


async def test_each_refusal_has_a_status_and_names_the_next_step(cluster: LocalCluster) -> None:
    ledger = await write(cluster, [b"one"], PASSWORD)
    a, number = cluster.bookies[0].id, str(ledger.id)
    for words, status, says in (
        (("entry", a, number, "0"), ExitCode.REFUSED, "--password-file"),
        (("entry", "no-such-bookie", number, "0"), ExitCode.NOT_FOUND, "quire bookie list"),
        (("entry", a, str(NO_LEDGER), "0"), ExitCode.NOT_FOUND, "quire ledger list"),
        (("entry", a, number, "-1"), ExitCode.USAGE, "negative"),
        (("compare", a, "no-such-bookie", number), ExitCode.NOT_FOUND, "quire bookie list"),
    ):
        found, answer, told = run(cluster, *words)
        assert (found, answer) == (status, b""), told
        assert says in told


async def test_an_entry_beyond_the_end_is_not_found(cluster: LocalCluster, tmp_path: Path) -> None:
    ledger = await write(cluster, [b"one"], PASSWORD)
    password = tmp_path / "password"
    password.write_bytes(PASSWORD)
    password.chmod(0o600)
    words = ("entry", cluster.bookies[0].id, str(ledger.id))
    status, _, told = run(cluster, *words, "7", "--password-file", str(password))
    assert status == ExitCode.NOT_FOUND
    assert "the ledger ends at entry 0" in told
    status, answer, _ = run(cluster, *words, "0", "--password-file", str(password), "-o", "json")
    assert (status, json.loads(answer)["verdict"]) == (ExitCode.DONE, "valid")
