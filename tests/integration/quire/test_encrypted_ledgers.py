"""`quire ledger` with encrypted ledgers, on real processes: keys, copies, and what no key sees."""

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.errors import ExitCode
from quire.operate.ledger_file import LedgerFileReader, LedgerFileWriter
from tests.integration.quire.command import RunningCluster

if TYPE_CHECKING:
    import subprocess

LINES = b"a line that bookies must not see\n\nanother one of these\n"
FIRST = LINES.split(b"\n")[0]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return made(tmp_path / "keys.toml", {"2026-11": b"1" * 32}, "2026-11")


def made(path: Path, keys: dict[str, bytes], current: str) -> Path:
    lines = [f'"{name}" = "{base64.b64encode(key).decode()}"' for name, key in keys.items()]
    path.write_text("\n".join([f'current = "{current}"', "[keys]", *lines]))
    path.chmod(0o600)
    return path


def encrypted(cluster: RunningCluster, key_file: Path, *words: str) -> str:
    told = cluster.json("ledger", "append", *words, "--key-file", str(key_file), stdin=LINES)
    return str(told["ledger_id"])


def read(cluster: RunningCluster, ledger: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return cluster.run("ledger", "read", ledger, *words, "-o", "json")


def failure(done: "subprocess.CompletedProcess[bytes]") -> tuple[int, str]:
    return done.returncode, json.loads(done.stderr.splitlines()[-1])["error"]


def test_lines_are_encrypted_and_read_back(cluster: RunningCluster, key_file: Path) -> None:
    ledger = encrypted(cluster, key_file)
    for verb in ("read", "tail"):
        done = cluster.run("ledger", verb, ledger, "--key-file", str(key_file))
        assert done.stdout == LINES
    shown = cluster.json("ledger", "show", ledger)
    assert shown["encryption"]["key_id"] == "2026-11"
    assert shown["length"] == len(LINES.replace(b"\n", b"")) + 3 * 16
    assert cluster.json("ledger", "verify", ledger)["is_well"]
    files = Path(cluster.told["data"]).rglob("bookie-*/**/*")
    held = [file.read_bytes() for file in files if file.is_file()]
    assert sum(map(len, held)) > 0
    assert not [each for each in held if FIRST in each]


def test_a_created_ledger_is_filled_with_its_key(cluster: RunningCluster, key_file: Path) -> None:
    created = cluster.json("ledger", "create", "--key-file", str(key_file))
    ledger = str(created["ledger_id"])
    refused = cluster.run("ledger", "append", ledger, "-o", "json", stdin=LINES)
    assert failure(refused) == (ExitCode.REFUSED, "EncryptedLedgerError")
    assert encrypted(cluster, key_file, ledger) == ledger
    assert cluster.run("ledger", "read", ledger, "--key-file", str(key_file)).stdout == LINES


def test_without_the_right_key_nothing_is_read(
    cluster: RunningCluster, key_file: Path, tmp_path: Path
) -> None:
    ledger = encrypted(cluster, key_file)
    done = read(cluster, ledger)
    assert failure(done) == (ExitCode.REFUSED, "EncryptedLedgerError")
    assert b"--key-file" in done.stderr
    other = made(tmp_path / "other.toml", {"2026-11": b"2" * 32}, "2026-11")
    none = made(tmp_path / "none.toml", {"2025-01": b"2" * 32}, "2025-01")
    for wrong in (other, none):
        done = read(cluster, ledger, "--key-file", str(wrong))
        assert failure(done) == (ExitCode.REFUSED, "EncryptionKeyError")
        assert done.stdout == b""
    key_file.chmod(0o604)
    done = read(cluster, ledger, "--key-file", str(key_file))
    assert failure(done) == (ExitCode.USAGE, "KeyFileError")
    assert b"chmod 600" in done.stderr
    plain = str(cluster.json("ledger", "append", stdin=LINES)["ledger_id"])
    done = read(cluster, plain, "--key-file", str(other))
    assert failure(done) == (ExitCode.REFUSED, "PlainLedgerError")


def test_export_and_import_keep_the_ciphertext(
    cluster: RunningCluster, key_file: Path, tmp_path: Path
) -> None:
    ledger, file = encrypted(cluster, key_file), tmp_path / "ledger.file"
    told = cluster.json("ledger", "export", ledger, str(file))  # without a key
    assert told["entry_count"] == 3
    assert FIRST not in file.read_bytes()
    copy = str(cluster.json("ledger", "import", str(file))["ledger_id"])
    assert copy != ledger
    again = tmp_path / "again.file"
    cluster.json("ledger", "export", copy, str(again))
    second = str(cluster.json("ledger", "import", str(again))["ledger_id"])
    for each in (copy, second):
        assert cluster.run("ledger", "read", each, "--key-file", str(key_file)).stdout == LINES
        assert failure(read(cluster, each)) == (ExitCode.REFUSED, "EncryptedLedgerError")
        shown, original = (cluster.json("ledger", "show", name) for name in (each, ledger))
        assert shown["encryption"] == original["encryption"]
        assert shown["length"] == original["length"]


def test_a_changed_entry_of_a_file_is_refused(
    cluster: RunningCluster, key_file: Path, tmp_path: Path
) -> None:
    """With a valid checksum, as a person who can write the file could make it."""
    ledger, file = encrypted(cluster, key_file), tmp_path / "ledger.file"
    cluster.json("ledger", "export", ledger, str(file))
    with file.open("rb") as stream:
        source = LedgerFileReader(stream)
        header, payloads = source.header, [each for block in source.blocks() for each in block]
    payloads[1] = payloads[1][:-1] + bytes([payloads[1][-1] ^ 1])
    with file.open("wb") as stream:
        writer = LedgerFileWriter(stream, header)
        writer.add(payloads)
        writer.end()
    copy = str(cluster.json("ledger", "import", str(file))["ledger_id"])
    done = read(cluster, copy, "--key-file", str(key_file))
    assert failure(done) == (ExitCode.DAMAGED, "DecryptionError")
    assert b"entry 1 cannot be decrypted" in done.stderr
