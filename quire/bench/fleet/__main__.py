"""Runs `quire bench fleet` by itself: `python -m quire.bench.fleet`."""

import asyncio
import sys

from quire.cli.command_line import Noun
from quire.cli.fleet import add_parser, run
from quire.cli.output import Output

noun = Noun("bench", "Measure ways to replicate.")
add_parser(noun)
if __name__ == "__main__":
    given = noun.parser.parse_args(["fleet", *sys.argv[1:]])
    made = Output(as_json=given.output == "json", results=sys.stdout, remarks=sys.stderr)
    sys.exit(asyncio.run(run(given, made)))
