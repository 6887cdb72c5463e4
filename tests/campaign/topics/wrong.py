"""`python -m tests.campaign.topics.wrong --seconds 45`: campaigns on copies with deliberate bugs.

Each must end with a broken guarantee of the kind that its bug causes, at full load. Prints one JSON
object. The exit status is 1 if one was not found. Leaves the patches to `tests.seeded_bugs`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.seeded_bug import Edit, SeededBug
from tests.seeded_bugs.trees import ROOT, apply_bug, copy_listed, environment

ENDS_NOT_READ: Final = SeededBug(
    "ends-of-older-ledgers-not-read",
    "Readers skip the last entries of a ledger that has a successor.",
    ("1.3",),
    (
        Edit(
            "broker_layer/log/log_reader.py",
            "        last_id = await self._last_entry_of(segment)\n"
            "        position = await self._position_of(segment, offset)\n"
            "        batches: list[ReadBatch] = []\n",
            "        last_id = await self._last_entry_of(segment)\n"
            "        if not segment.is_open:\n"
            "            last_id = EntryId(last_id - 2)\n"
            "        position = await self._position_of(segment, offset)\n"
            "        batches: list[ReadBatch] = []\n",
        ),
    ),
    (),
)
EXPECTED: Final[Mapping[str, str]] = {
    "ends-of-older-ledgers-not-read": "lost",
    "offsets-reassigned-by-a-new-leader": "end went back",
    "repeated-batch-appended-again": "duplicate",
    "aborted-transactions-not-listed": "aborted token",
}
"""A bug, and a guarantee that its campaign must report as broken, maybe among others."""
WRONG: Final = tuple(bug for bug in (*BUGS, ENDS_NOT_READ) if bug.name in EXPECTED)
LIMIT_S: Final = 1_200


def run_wrong(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """Run a campaign on a copy of this tree with one bug; return its summary."""
    (bug,) = (seeded_bug for seeded_bug in WRONG if seeded_bug.name == name)
    with tempfile.TemporaryDirectory(prefix="quire-wrong-") as directory:
        copy = Path(directory)
        copy_listed(ROOT, copy)
        apply_bug(bug, copy)
        command = [
            *(sys.executable, "-m", "tests.campaign.topics"),
            *("--minutes", str(seconds / 60), "--seed", str(seed)),
        ]
        done = subprocess.run(
            command,
            check=False,
            cwd=copy,
            env=environment(copy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
        )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def main() -> int:
    """Run one campaign for each bug."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.topics.wrong")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--only", nargs="+", choices=sorted(EXPECTED), default=list(EXPECTED))
    given = parser.parse_args()
    results = {}
    for name in given.only:
        summary = run_wrong(name, given.seconds, given.seed)
        broken = summary["checked"].get("broken", {})
        results[name] = {
            "is_found": EXPECTED[name] in broken,
            "acked_records": summary["acked_records"],
            "broken": broken,
            "complaints": [each[:500] for each in summary["complaints"]],
        }
    sys.stdout.write(json.dumps(results, indent=2) + "\n")
    return 0 if all(result["is_found"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
