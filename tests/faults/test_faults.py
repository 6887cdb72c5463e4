"""Tests of every campaign at its small budget, and of its judges with false promises."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.budget import EXIT_BROKEN, EXIT_NOT_WHOLE
from tests.faults.examining import examine_copy
from tests.faults.left_out_syncs import KINDS
from tests.faults.promises import Promises, batch_of, open_storage
from tests.support.bookie.batches import make_batch
from tests.support.bookie.storage_fixture import add

REPOSITORY: Final = Path(__file__).parents[2]
LIMIT_S: Final = 900  # a guard against hangs, beside a load of 30 too
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(LIMIT_S + 60),
]
LEDGER: Final = 3
ENTRIES: Final = 4


def run(name: str, seed: int = 1) -> dict[str, Any]:
    """Run a campaign in a separate process, since it forks."""
    words = (sys.executable, "-m", "tests.faults", name, "--seed", str(seed))
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, timeout=LIMIT_S, check=False)
    assert done.stdout, done.stderr.decode()
    summary: dict[str, Any] = json.loads(done.stdout)
    if "skipped" in summary:
        assert (done.returncode, summary["is_well"]) == (EXIT_NOT_WHOLE, False)
        pytest.skip(summary["skipped"])
    assert done.returncode == (0 if summary["is_well"] else EXIT_BROKEN)
    assert summary["is_well"], json.dumps(summary, indent=2) + done.stderr.decode()
    assert summary["result"] == "clean and whole"
    assert b"clean and whole" in done.stderr
    return summary


@pytest.mark.parametrize(
    "name", ["single_log", "torn_states", "pause_fence_resume", "cluster_kills"]
)
def test_every_promise_is_kept(name: str) -> None:
    run(name)


def test_lost_answers_of_zookeeper_lose_no_entry() -> None:
    counts = run("zookeeper_proxy")["counts"]
    for what in ("answer of", "request of"):
        assert any(name.startswith(what) for name in counts), counts


def test_power_cuts_lose_data_only_without_syncs() -> None:
    counts = run("power_cut")["counts"]
    assert [counts[f"without {kind}, found out in cycle"] > 0 for kind in KINDS] == [
        True for _ in KINDS
    ]


def promises_of(*lines: str) -> Promises:
    promises = Promises()
    promises.take("".join(f"{line}\n" for line in lines).encode())
    return promises


async def _write(directory: Path) -> None:
    storage = await open_storage(directory)
    await add(storage, batch_of(LEDGER, 0, ENTRIES))
    await add(storage, batch_of(LEDGER + 1, 0, 1))
    await storage.close()


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ((), ""),
        ((f"adding {LEDGER} 4 4", f"added {LEDGER} 4 4"), "lost 4: NO_SUCH_ENTRY"),
        (("adding 9 0 0", "added 9 0 0"), "lost 0: NO_SUCH_LEDGER"),
        ((f"fenced {LEDGER} 0 0",), "takes an ordinary add"),
        ((f"telling {LEDGER} 9 0", f"told {LEDGER} 9 0"), "LAC 9 was kept as -1"),
        ((f"deleted {LEDGER} 0 0",), "was deleted, and is OK"),
    ],
)
def test_false_promises_are_reported(tmp_path: Path, lie: tuple[str, ...], found: str) -> None:
    """Check that the judge reports a promise that was never made."""
    asyncio.run(_write(tmp_path / "data"))
    told = (f"adding {LEDGER} 0 3", f"added {LEDGER} 0 3", *lie)
    shortcomings = examine_copy(tmp_path / "data", promises_of(*told)).shortcomings
    assert len(shortcomings) == (1 if found else 0), shortcomings
    assert found in "".join(shortcomings)


def test_changed_bytes_are_reported(tmp_path: Path) -> None:
    async def write() -> None:
        storage = await open_storage(tmp_path / "data")
        await add(storage, make_batch(LEDGER, 0, [b"other bytes than its ledger and id make"]))
        await storage.close()

    asyncio.run(write())
    told = promises_of(f"adding {LEDGER} 0 0", f"added {LEDGER} 0 0")
    (violation,) = examine_copy(tmp_path / "data", told).violations
    assert "other bytes at 0" in violation


def test_unknown_entries_without_damage_are_a_shortcoming(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path / "data"))
    log = tmp_path / "data" / "log" / "00000001.log"
    data = log.read_bytes()
    place = data.index(bytes(batch_of(LEDGER, 0, ENTRIES).payload_views()[1]))
    log.write_bytes(data[:place] + b"?" + data[place + 1 :])
    told = promises_of(f"adding {LEDGER} 0 3", f"added {LEDGER} 0 3")
    verdict = examine_copy(tmp_path / "data", told)
    assert verdict.violations == ()
    assert verdict.unknown == ENTRIES
    assert verdict.shortcomings
