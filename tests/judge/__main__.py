"""`python -m tests.judge operations FILE`: the verdict of porcupine on operations on ledgers;
`python -m tests.judge transactions FILE`: the anomalies of transactions of topics.

`--plant lost-write` judges a copy with that error instead: it must be rejected. The others are
`stale-read` for operations, and `aborted-read` for transactions. Prints one JSON object. The exit
status is 0 if the history was accepted, 1 if it was rejected, 3 if the search took too long, 4 if
Go cannot run.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.judge.elle import find_anomalies
from tests.judge.linearizability import judge_operations
from tests.judge.planting import PLANTS, TRANSACTION_PLANTS, plant
from tests.judge.transactions import read_transactions

STATUSES: Final = {"accepted": 0, "rejected": 1, "undecided": 3, "skipped": 4}


def main() -> int:
    """Judge one history."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, plants in (("operations", PLANTS), ("transactions", TRANSACTION_PLANTS)):
        one = kinds.add_parser(kind)
        one.add_argument("history", type=Path)
        one.add_argument("--plant", choices=sorted(plants))
    given = parser.parse_args()
    judge = _judge_operations if given.kind == "operations" else _judge_transactions
    verdict = judge(given.history, given.plant)
    sys.stdout.write(json.dumps(verdict, indent=2) + "\n")
    return STATUSES[verdict["result"]]


def _judge_operations(history: Path, planted: str | None) -> dict[str, Any]:
    if planted is None:
        return judge_operations(history).as_json()
    with tempfile.TemporaryDirectory(prefix="quire-planted-") as directory:
        copy = Path(directory) / "planted"
        plant(planted, history, copy)
        return judge_operations(copy).as_json()


def _judge_transactions(history: Path, planted: str | None) -> dict[str, Any]:
    read = read_transactions(history)
    return find_anomalies(TRANSACTION_PLANTS[planted](read) if planted else read).as_json()


if __name__ == "__main__":
    sys.exit(main())
