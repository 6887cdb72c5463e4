"""Command line that sends the script of security to a broker, and prints the differences.

The broker is started for this: it needs a super user and no lists. Leaves the script to the
`*_cases` modules, comparing to `tests.differential.comparison`, the files to `golden`, and starting
brokers to `servers`.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from random import Random

from tests.differential.comparison import compare
from tests.differential.security.golden import (
    GOLDEN,
    expected_answers,
    golden_text,
    recorded_answers,
)
from tests.differential.security.script import CASES, name_of
from tests.differential.security.secure_run import SecureRun
from tests.differential.security.servers import secure_broker


async def answers_of(which: str, only: Sequence[str] = ()) -> SecureRun:
    """Start a broker and send it the complete script, or the named cases."""
    async with secure_broker(which) as broker:
        run = SecureRun(broker, Random())
        try:
            await run.learn_versions()
            await run.wait_coordinators()
            if which == "quire":
                run.expect({**recorded_answers(), **expected_answers()})
            for case in CASES:
                if only and not any(name_of(case).startswith(each) for each in only):
                    continue
                try:
                    await case(run)
                except Exception as error:  # noqa: BLE001  # the other cases are still run
                    run.answers[f"broken off/{name_of(case)}"] = f"{type(error).__name__}: {error}"
        finally:
            await run.aclose()
    return run


def say(*lines: str) -> None:
    """Print lines."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


async def _run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    run = await answers_of(options.broker, options.only)
    seconds = time.monotonic() - started
    if options.record:
        answers = {**recorded_answers(), **run.answers} if options.only else run.answers
        GOLDEN.write_text(golden_text(answers))
        say(f"{len(run.answers)} answers recorded in {seconds:.0f} s")
        return 0
    golden = recorded_answers()
    if options.only:
        golden = {name: golden[name] for name in golden if name in run.answers}
    comparison = compare(run, golden, expected_answers())
    say(*comparison.unexpected)
    for text in run.not_advertised:
        say(f"not advertised: {text}")
    say(
        f"{len(run.answers)} operations in {seconds:.0f} s: {len(comparison.unexpected)} differ, "
        f"{comparison.expected_count} differ as expected, {len(run.not_advertised)} not advertised"
    )
    return 1 if comparison.unexpected else 0


def main() -> int:
    """Run the script; return 1 if an answer has an unexpected difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.security")
    parser.add_argument("broker", choices=["quire", "kafka"], help="the broker to start and judge")
    parser.add_argument("--record", action="store_true", help="write down its answers")
    parser.add_argument("--only", nargs="+", default=[], help="cases: login, acl.creating, ...")
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
