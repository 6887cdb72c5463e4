"""Runs the benchmark scripts one after the other and combines their output in one JSON document.

Leaves measuring to the scripts. The document goes to standard output and to a file; the scripts'
remarks for people go to standard error as they come.

Format: `machine` (the first script's record), `figures` and `samples` (their records, in order),
`failed` (scripts that failed, with their exit status).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ALL: Final = ("startup", "append", "read", "failover", "many_ledgers", "restart", "age")
"""`raw` is not in the list: `append` runs it next to each of its cases."""

FOLDERS: Final = (
    "ledgers",
    "bookies",
    "brokers",
    "repair",
    "spark",
    "console",
    "floods",
    "zookeeper",
)


def module_of(name: str) -> str:
    """Return the module of a script, which is in one of the folders or directly in this package."""
    for folder in FOLDERS:
        if (Path(__file__).parent / folder / f"{name}.py").exists():
            return f"benchmarks.{folder}.{name}"
    return f"benchmarks.{name}"


def document(lines: Sequence[str], failed: dict[str, int], started: str) -> dict[str, object]:
    """Return the results of a run as one value."""
    records = [json.loads(line) for line in lines if line.startswith("{")]
    chosen: dict[str, list[dict[str, object]]] = {"machine": [], "figure": [], "sample": []}
    for record in records:
        kind = record.pop("record", None)
        if kind in chosen:
            chosen[kind].append(record)
    return {
        "started": started,
        "machine": chosen["machine"][0] if chosen["machine"] else None,
        "figures": chosen["figure"],
        "missed": [figure for figure in chosen["figure"] if figure.get("met") is False],
        "failed": failed,
        "samples": chosen["sample"],
    }


def main() -> int:
    """Run the given scripts; return 1 if one failed (a missed target is not a failure)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run")
    parser.add_argument("names", nargs="*", default=list(ALL), metavar="NAME")
    parser.add_argument("--smoke", action="store_true", help="a few seconds each, tiny sizes")
    parser.add_argument("--repeat", type=int, help="runs of each case")
    parser.add_argument("--data-dir", help="directory for data during a script")
    parser.add_argument("--output", type=Path, default=Path("bench-results"), help="a directory")
    options = parser.parse_args()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    flags = ["--smoke"] if options.smoke else []
    flags += ["--repeat", str(options.repeat)] if options.repeat else []
    flags += ["--data-dir", options.data_dir] if options.data_dir else []
    lines: list[str] = []
    failed: dict[str, int] = {}
    for name in options.names:
        command = [sys.executable, "-m", module_of(name), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines += done.stdout.splitlines()
        if done.returncode != 0:
            failed[name] = done.returncode
    results = document(lines, failed, started)
    text = json.dumps(results, indent=1)
    options.output.mkdir(parents=True, exist_ok=True)
    name = f"smoke-{started}" if options.smoke else started
    (options.output / f"{name.replace(':', '')}.json").write_text(text + "\n")
    print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
