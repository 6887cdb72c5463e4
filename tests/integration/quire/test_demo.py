"""Test of the demo on a small file; `make demo` runs it on the complete standard library."""

import json
from pathlib import Path

from tests.integration.quire.command import run_quire


def test_every_claim_of_the_demo_holds(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d of a file\n" % n for n in range(200_000)) + b"no newline")
    done = run_quire("demo", "--file", str(file), "-o", "json")
    told = json.loads(done.stdout)
    assert [check for check in told["checks"] if not check["holds"]] == []
    assert (done.returncode, told["is_well"]) == (0, True), done.stderr.decode()
    assert (told["entry_count"], told["byte_count"]) == (200_001, file.stat().st_size)
    assert (len(told["checks"]), told["bookies_hurt"]) == (6, 2)
    assert len(told["fragments"]) >= 3


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    done = run_quire("demo", "--file", str(tmp_path / "none"))
    assert done.returncode == 2
