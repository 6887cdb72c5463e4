"""Tests of every verb about ledgers, as a process, with a real cluster."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest

from metadata.ids import LedgerId
from metadata.paths import ledger_path
from metadata.store.zookeeper.store import open_store
from quire.errors import ExitCode
from tests.integration.quire.command import QUIRE, TIMEOUT_S, RunningCluster, environment

LINES = b"one\n\nthree\n"


def append(cluster: RunningCluster, data: bytes, *words: str) -> int:
    return int(cluster.json("ledger", "append", *words, stdin=data)["ledger_id"])


def failure_of(done: "subprocess.CompletedProcess[bytes]") -> dict[str, str]:
    told: dict[str, str] = json.loads(done.stderr)
    return told


def test_lines_are_read_back(cluster: RunningCluster) -> None:
    told = cluster.json("ledger", "append", stdin=LINES)
    assert (told["state"], told["last_entry_id"], told["length"]) == ("closed", 2, 8)
    read = cluster.run("ledger", "read", str(told["ledger_id"]))
    assert (read.returncode, read.stdout) == (0, LINES)


def test_commands_leave_no_ids_unused(cluster: RunningCluster) -> None:
    first = append(cluster, LINES)
    created = int(cluster.run("ledger", "create").stdout)
    assert (created, append(cluster, LINES)) == (first + 1, first + 2)


def test_a_range_is_read(cluster: RunningCluster) -> None:
    ledger = append(cluster, b"".join(b"%d\n" % n for n in range(5000)))
    read = cluster.run("ledger", "read", str(ledger), "--first", "1020", "--last", "1030")
    assert read.stdout.split() == [b"%d" % n for n in range(1020, 1031)]


def test_entries_as_json(cluster: RunningCluster) -> None:
    ledger = append(cluster, "é\n".encode() + b"\xff\n")
    read = cluster.run("ledger", "read", str(ledger), "-o", "json")
    rows = [json.loads(line) for line in read.stdout.splitlines()]
    assert rows == [{"entry_id": 0, "data": "é"}, {"entry_id": 1, "data_base64": "/w=="}]


def test_bytes_are_read_back(cluster: RunningCluster) -> None:
    data = bytes(range(256)) * 40 + b"end"
    ledger = append(cluster, data, "--chunk-bytes", "1000")
    assert cluster.run("ledger", "read", str(ledger), "--raw").stdout == data


def test_an_empty_input_makes_an_empty_ledger(cluster: RunningCluster) -> None:
    ledger = append(cluster, b"")
    assert cluster.json("ledger", "show", str(ledger))["last_entry_id"] == -1
    read = cluster.run("ledger", "read", str(ledger))
    assert (read.returncode, read.stdout) == (0, b"")


def test_a_created_ledger_is_filled_once(cluster: RunningCluster) -> None:
    created = cluster.run("ledger", "create", "--meta", "app=orders")
    ledger = created.stdout.decode().strip()
    assert cluster.json("ledger", "show", ledger)["state"] == "open"
    assert append(cluster, LINES, ledger) == int(ledger)
    shown = cluster.json("ledger", "show", ledger)
    assert (shown["state"], shown["metadata"]) == ("closed", {"app": "orders"})
    again = cluster.run("ledger", "append", ledger, "-o", "json", stdin=LINES)
    assert again.returncode == ExitCode.REFUSED
    assert failure_of(again)["error"] == "LedgerClosedError"
    assert "leave the id out" in failure_of(again)["message"]


def test_a_chosen_id_is_taken_once(cluster: RunningCluster) -> None:
    assert cluster.json("ledger", "create", "--id", "123456789")["ledger_id"] == 123456789
    again = cluster.run("ledger", "create", "--id", "123456789", "-o", "json")
    assert again.returncode == ExitCode.REFUSED
    assert failure_of(again)["error"] == "LedgerExistsError"


def test_an_unknown_ledger(cluster: RunningCluster) -> None:
    for verb in ("show", "read", "tail", "verify", "recover", "delete", "append"):
        done = cluster.run("ledger", verb, "987654321", "-o", "json", stdin=b"x\n")
        assert done.returncode == ExitCode.NOT_FOUND, (verb, done.stderr)
        assert failure_of(done)["error"] == "LedgerNotFoundError"


def test_a_password_is_needed(cluster: RunningCluster, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("a secret password\n")
    wrong.write_text("guess\n")
    for path in (right, wrong):
        path.chmod(0o600)
    keyed = ("--digest", "hmac-sha256", "--password-file", str(right))
    ledger = str(append(cluster, LINES, *keyed))
    read = cluster.run("ledger", "read", ledger, "--password-file", str(right))
    assert read.stdout == LINES
    assert cluster.json("ledger", "verify", ledger, "--password-file", str(right))["is_well"]
    refused = cluster.run("ledger", "read", ledger, "--password-file", str(wrong), "-o", "json")
    assert refused.returncode == ExitCode.REFUSED
    assert failure_of(refused)["error"] == "UnauthorizedError"


def test_tail_ends_with_a_closed_ledger(cluster: RunningCluster) -> None:
    ledger = str(append(cluster, LINES))
    assert cluster.run("ledger", "tail", ledger).stdout == LINES
    assert cluster.run("ledger", "tail", ledger, "--lines", "1").stdout == b"three\n"


def test_a_live_ledger_is_followed_and_taken_over(cluster: RunningCluster) -> None:
    ledger = cluster.run("ledger", "create").stdout.decode().strip()
    writer = cluster.start("ledger", "append", ledger)
    assert writer.stdin is not None
    writer.stdin.write(b"first\nsecond\n")
    writer.stdin.flush()
    tail = cluster.start("ledger", "tail", ledger, "--first", "0")
    assert tail.stdout is not None
    assert [tail.stdout.readline(), tail.stdout.readline()] == [b"first\n", b"second\n"]

    refused = cluster.run("ledger", "recover", ledger, "-o", "json")
    assert refused.returncode == ExitCode.REFUSED
    assert failure_of(refused)["error"] == "NeedsConsentError"
    recovered = cluster.json("ledger", "recover", ledger, "--yes")
    assert (recovered["state"], recovered["last_entry_id"]) == ("closed", 1)
    assert tail.communicate(timeout=TIMEOUT_S) == (b"", b"")

    _, errors = writer.communicate(b"third\n", timeout=TIMEOUT_S)
    assert writer.returncode == ExitCode.REFUSED
    assert b"fenced" in errors.lower()
    assert f"ledger {ledger} has the first 2 entries of the input".encode() in errors
    assert cluster.run("ledger", "read", ledger).stdout == b"first\nsecond\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_append_says_what_is_safe(
    cluster: RunningCluster, number: signal.Signals
) -> None:
    ledger = cluster.run("ledger", "create").stdout.decode().strip()
    writer = cluster.start("ledger", "append", ledger)
    assert writer.stdin is not None
    writer.stdin.write(b"first\nsecond\n")
    writer.stdin.flush()
    tail = cluster.start("ledger", "tail", ledger, "--first", "0")
    assert tail.stdout is not None
    assert [tail.stdout.readline(), tail.stdout.readline()] == [b"first\n", b"second\n"]
    writer.send_signal(number)
    _, errors = writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == ExitCode.INTERRUPTED
    kept = f"ledger {ledger} has the first 2 entries of the input, and is closed\n"
    assert kept.encode() in errors
    assert tail.communicate(timeout=TIMEOUT_S)[0] == b""


def test_ctrl_c_ends_a_tail_cleanly(cluster: RunningCluster) -> None:
    ledger = cluster.run("ledger", "create").stdout.decode().strip()
    writer = cluster.start("ledger", "append", ledger)
    assert writer.stdin is not None
    writer.stdin.write(b"first\n")
    writer.stdin.flush()
    tail = cluster.start("ledger", "tail", ledger)
    assert tail.stdout is not None
    assert tail.stdout.readline() == b"first\n"
    tail.send_signal(signal.SIGINT)
    _, errors = tail.communicate(timeout=TIMEOUT_S)
    assert tail.returncode == ExitCode.INTERRUPTED
    assert b"Traceback" not in errors
    writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == 0


def test_a_closed_pipe_ends_a_read_quietly(cluster: RunningCluster) -> None:
    ledger = str(append(cluster, b"x" * 99 + b"\n" + b"y\n" * 200_000))
    read = subprocess.Popen(
        [*QUIRE, "ledger", "read", ledger],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cluster.metadata),
    )
    assert read.stdout is not None
    assert read.stdout.readline() == b"x" * 99 + b"\n"
    read.stdout.close()
    assert read.wait(timeout=TIMEOUT_S) == ExitCode.OUTPUT_CLOSED
    assert read.stderr is not None
    assert read.stderr.read() == b""
    read.stderr.close()


def test_export_and_import(cluster: RunningCluster, tmp_path: Path) -> None:
    ledger = str(append(cluster, LINES, "--meta", "app=orders"))
    file = tmp_path / "ledger.file"
    told = cluster.json("ledger", "export", ledger, str(file))
    assert (told["entry_count"], told["length"]) == (3, 8)
    copy = cluster.json("ledger", "import", str(file))
    assert copy["exported_ledger_id"] == int(ledger) != copy["ledger_id"]
    assert cluster.run("ledger", "read", str(copy["ledger_id"])).stdout == LINES
    shown = cluster.json("ledger", "show", str(copy["ledger_id"]))
    assert shown["metadata"] == {"app": "orders"}


def test_a_ledger_goes_through_a_pipe(cluster: RunningCluster) -> None:
    ledger = str(append(cluster, LINES))
    exported = cluster.run("ledger", "export", ledger, "-")
    copy = cluster.json("ledger", "import", "-", stdin=exported.stdout)
    assert cluster.run("ledger", "read", str(copy["ledger_id"])).stdout == LINES


def test_an_import_keeps_in_sync_mode(cluster: RunningCluster, tmp_path: Path) -> None:
    file = tmp_path / "ledger.file"
    asked = ("--in-sync", "--ensemble", "2", "--min-in-sync", "1", "--replica-lag-time-max", "3")
    ledger = str(cluster.json("ledger", "append", *asked, stdin=b"a\nb\n")["ledger_id"])
    cluster.json("ledger", "export", ledger, str(file))
    copy = str(cluster.json("ledger", "import", str(file))["ledger_id"])
    shown, original = (cluster.json("ledger", "show", each) for each in (copy, ledger))
    assert shown["quorum"] == original["quorum"]
    assert shown["quorum"]["min_in_sync"] == 1
    other = cluster.json("ledger", "import", str(file), "--ensemble", "3")["ledger_id"]
    assert cluster.json("ledger", "show", str(other))["quorum"]["min_in_sync"] is None


def test_a_damaged_file_leaves_no_ledger(cluster: RunningCluster, tmp_path: Path) -> None:
    ledger = str(append(cluster, LINES))
    file = tmp_path / "ledger.file"
    cluster.json("ledger", "export", ledger, str(file))
    before = [row["ledger_id"] for row in cluster.json("ledger", "list")]
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    done = cluster.run("ledger", "import", str(file), "-o", "json")
    assert done.returncode == ExitCode.DAMAGED
    assert failure_of(done)["error"] == "DamagedFileError"
    assert [row["ledger_id"] for row in cluster.json("ledger", "list")] == before


def test_delete_requires_confirmation(cluster: RunningCluster) -> None:
    ledger = str(append(cluster, LINES))
    refused = cluster.run("ledger", "delete", ledger, "-o", "json")
    assert refused.returncode == ExitCode.REFUSED
    assert f"ledger {ledger} (closed, 3 entries" in failure_of(refused)["message"]
    assert cluster.json("ledger", "delete", ledger, "--yes")["is_deleted"]
    assert cluster.run("ledger", "show", ledger).returncode == ExitCode.NOT_FOUND


def test_verify_a_sound_ledger(cluster: RunningCluster) -> None:
    ledger = str(append(cluster, b"entry\n" * 3000))
    told = cluster.json("ledger", "verify", ledger)
    assert told["is_well"]
    assert [each["verified_count"] for each in told["bookies"]] == [3000] * 3
    striped = str(append(cluster, b"entry\n" * 5000, "--ensemble", "4", "--write", "3"))
    told = cluster.json("ledger", "verify", striped)
    assert told["is_well"]
    assert sum(each["verified_count"] for each in told["bookies"]) == 15_000


@pytest.mark.parametrize("words", [("--ack", "4"), ("--meta", "novalue"), ("--ensemble", "0")])
def test_wrong_options_are_usage_errors(cluster: RunningCluster, words: tuple[str, str]) -> None:
    done = cluster.run("ledger", "create", *words)
    assert done.returncode == ExitCode.USAGE


def test_too_few_bookies_are_reported(cluster: RunningCluster) -> None:
    done = cluster.run("ledger", "create", "--ensemble", "5", "-o", "json")
    assert done.returncode == ExitCode.UNAVAILABLE
    assert failure_of(done)["error"] == "NotEnoughBookiesError"


def test_a_ledger_that_cannot_be_read_is_listed_and_deleted(cluster: RunningCluster) -> None:
    before, ledger, after = (append(cluster, LINES) for _ in range(3))

    async def spoil() -> None:
        store = await open_store(cluster.metadata, rng=Random(1))
        path = ledger_path(LedgerId(ledger))
        await store.compare_and_set(path, b"\x91\x63", (await store.get(path)).version)
        await store.aclose()

    asyncio.run(spoil())
    rows = {row["ledger_id"]: row["state"] for row in cluster.json("ledger", "list")}
    assert [rows[each] for each in (before, ledger, after)] == ["closed", "unreadable", "closed"]
    assert [*rows] == sorted(rows)
    refused = cluster.run("ledger", "delete", str(ledger), "-o", "json")
    assert "(unreadable: it has format version 99" in failure_of(refused)["message"]
    assert cluster.json("ledger", "delete", str(ledger), "--yes")["is_deleted"]
    assert ledger not in [row["ledger_id"] for row in cluster.json("ledger", "list")]
