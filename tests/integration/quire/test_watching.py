"""`quire top` and `quire cluster report` with a real, secured cluster: figures, and no secrets."""

import asyncio
import json
import tarfile
from pathlib import Path

from ledger_client import LedgerClient, Quorum
from quire.errors import ExitCode
from quire.identity.secret_files import read_secret
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire

PAYLOAD = b"a payload that no one else reads"


async def run(cluster: LocalCluster, *words: str) -> tuple[int, bytes]:
    done = await asyncio.to_thread(run_quire, *words, metadata=cluster.metadata_uri)
    return done.returncode, done.stdout


async def test_figures_and_a_report_without_secrets(tmp_path: Path) -> None:
    async with LocalCluster(3, tmp_path / "data", broker=1, secure=True) as cluster:
        async with (
            LedgerClient(cluster.metadata_uri) as client,
            client.create_ledger(
                Quorum(3, 3, 2),
                digest="hmac-sha256",
                password=b"a ledger's password",
                metadata={"note": "a custom text"},
            ) as ledger,
        ):
            for _ in range(20):
                await ledger.append(PAYLOAD)
        status, text = await run(cluster, "top", "--once", "--interval", "1", "-o", "json")
        assert status == ExitCode.DONE
        shown = json.loads(text)
        assert [each["state"] for each in shown["bookies"]] == ["up"] * 3
        assert shown["bookies"][0]["entries_per_s"] == 0
        assert shown["brokers"][0]["not_served"] == 0
        assert "repair" in shown["repair"].lower()
        path = tmp_path / "report.tar.gz"
        status, _ = await run(cluster, "cluster", "report", str(path))
        assert status == ExitCode.DONE
        password = read_secret(cluster.certificates.password_file("client"))
    with tarfile.open(path) as tar:
        files = {getmember.name: tar.extractfile(getmember) for getmember in tar.getmembers()}
        content = {name: file.read() for name, file in files.items() if file is not None}
    names = {name.partition("/")[2] for name in content}
    assert {"health.json", "bookies.json", "repair.json", "ledgers.json", "notes.txt"} <= names
    assert sum(name.startswith("metrics/") for name in names) == 4
    assert content["quire-report/notes.txt"] == b"everything was read\n"
    for secret in (PAYLOAD, b"a ledger's password", b"a custom text", password.encode()):
        assert not [name for name, data in content.items() if secret in data]
    keys = [path.read_bytes()[100:140] for path in (tmp_path / "data").rglob("*-key.pem")]
    assert keys
    assert not [name for name, data in content.items() if any(key in data for key in keys)]
