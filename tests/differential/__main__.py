"""Command line that sends the script to a broker, and prints the differences from Apache Kafka.

The script uses one broker, which must lead every partition and group. Leaves the script to the
`*_cases` modules, comparing to `comparison`, and starting brokers to `tests.kafka.brokers`.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from random import Random

from tests.differential.answers import Json
from tests.differential.comparison import GOLDEN, compare, golden_text, meant, recorded
from tests.differential.run import Run
from tests.differential.script import CASES, name_of
from tests.kafka.brokers import broker


def say(*lines: str) -> None:
    """Print lines."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


async def answers_of(
    address: str, only: Sequence[str] = (), wanted: Mapping[str, Json] | None = None
) -> Run:
    """Send the complete script, or the named cases, to a broker. `wanted` are the answers that it
    should have; without them it is waited for a fixed time after changes.
    """
    run = Run(address, Random())
    run.expect(wanted or {})
    try:
        await run.learn_versions()
        await run.wait_coordinators()
        for case in CASES:
            if only and not any(name_of(case).startswith(each) for each in only):
                continue
            try:
                await case(run)
            except Exception as error:  # noqa: BLE001  # the other cases are still told
                run.answers[f"broken off/{name_of(case)}"] = f"{type(error).__name__}: {error}"
    finally:
        await run.aclose()
    return run


async def _reference(against: str | None, only: Sequence[str]) -> dict[str, Json]:
    if against is None:
        return recorded()
    async with broker(against, brokers=1) as address:
        return (await answers_of(address, only)).answers


async def _run(options: argparse.Namespace) -> int:
    if options.record:
        heard = await _reference(options.against or "kafka", ())
        GOLDEN.write_text(golden_text(heard))
        say(f"{len(heard)} answers recorded")
        return 0
    golden = await _reference(options.against, options.only)
    started = time.monotonic()
    async with broker(options.address, brokers=1) as address:
        run = await answers_of(address.partition(",")[0], options.only, {**golden, **meant()})
    seconds = time.monotonic() - started
    if options.only:
        golden = {name: golden[name] for name in golden if name in run.answers}
    comparison = compare(run, golden)
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
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument(
        "address", nargs="?", help="the broker to judge: HOST:PORT, or start: quire, kafka"
    )
    parser.add_argument(
        "--against", help="the one to compare with, as ADDRESS; else what is recorded"
    )
    parser.add_argument("--record", action="store_true", help="write down what --against answers")
    parser.add_argument("--only", nargs="+", default=[], help="cases: produce, group.joining, ...")
    options = parser.parse_args()
    if options.address is None and not options.record:
        parser.error("name a broker, or --record")
    return asyncio.run(_run(options))


if __name__ == "__main__":
    sys.exit(main())
