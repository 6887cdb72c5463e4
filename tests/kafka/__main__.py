"""Command line that runs scenarios of stock clients against any broker, and prints the results.

Leaves the scenarios to the modules that list SCENARIOS.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack

from tests.kafka.brokers import broker_in_thread, secure_brokers_in_thread
from tests.kafka.endpoint import Endpoint
from tests.kafka.every_client import SCENARIOS
from tests.kafka.fetching import UNAVAILABLE
from tests.kafka.scenario import Scenario


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_all(endpoint: Endpoint, scenarios: Sequence[Scenario], *, is_verbose: bool) -> int:
    """Run scenarios, print a line for each; return the number of failed ones."""
    failed = 0
    for scenario in scenarios:
        started = time.monotonic()
        why = ""
        try:
            scenario.run(endpoint)
            verdict = "pass"
        except UNAVAILABLE as error:
            verdict, why = "not available", str(error)
        except Exception as error:  # noqa: BLE001  # the others still run
            verdict, why = "FAIL", f"{type(error).__name__}: {error}"[:400]
            failed += 1
            if is_verbose:
                traceback.print_exc()
        seconds = time.monotonic() - started
        say(f"{scenario.client:20} {scenario.name:34} {seconds:6.1f} s  {verdict}  {why}")
    say(f"{len(scenarios)} scenarios, {failed} failed")
    return failed


def main() -> int:
    """Run the chosen scenarios; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=__doc__)
    parser.add_argument("--address", default="kafka", help="HOST:PORT, or start: quire, kafka")
    parser.add_argument(
        "--identity",
        choices=("login", "certificate"),
        help="of the clients, over TLS; only of Quire, which is started",
    )
    parser.add_argument("--only", nargs="+", default=[], help="parts of 'client: scenario'")
    parser.add_argument("--list", action="store_true", help="print the scenarios' names")
    parser.add_argument("--verbose", action="store_true", help="print tracebacks of failures")
    options = parser.parse_args()
    wanted = [
        scenario
        for scenario in SCENARIOS
        if any(part in scenario.title for part in options.only or [""])
    ]
    if options.identity is not None and options.address != "quire":
        parser.error("--identity needs --address quire")
    if options.list:
        for scenario in wanted:
            say(scenario.title)
        return 0
    with ExitStack() as stack:
        if options.identity is None:
            endpoint = stack.enter_context(broker_in_thread(options.address))
        else:
            endpoints = stack.enter_context(secure_brokers_in_thread())
            is_login = options.identity == "login"
            endpoint = endpoints.login if is_login else endpoints.certificate
        return min(run_all(endpoint, wanted, is_verbose=options.verbose), 1)


if __name__ == "__main__":
    sys.exit(main())
