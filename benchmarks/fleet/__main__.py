"""Runs the comparison of a simulated fleet: `python -m benchmarks.fleet`."""

import asyncio
import sys

from benchmarks.fleet.command import parser, run
from quire.cli.output import Output
from quire.errors import CommandError, exit_code


def main() -> int:
    """Simulate, and return the exit status."""
    given = parser().parse_args()
    output = Output(as_json=given.output == "json", results=sys.stdout, remarks=sys.stderr)
    try:
        return asyncio.run(run(given, output))
    except CommandError as error:
        code = exit_code(error)
        output.failure(error, code)
        return code


if __name__ == "__main__":
    sys.exit(main())
