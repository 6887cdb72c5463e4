"""Runs the simulation of ledgers from the command line.

Leaves reading it, and what is printed, to `tests.simulation.command`.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.simulation.command import Simulation, run_command
from tests.simulation.plan import THEMES, theme_of
from tests.simulation.run import run_seed

LEDGERS: Final = Simulation(
    "python -m tests.simulation",
    tuple(THEMES),
    theme_of,
    run_seed,
    partial(run_seed, beyond_budget=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return the exit status."""
    return run_command(LEDGERS, arguments)


if __name__ == "__main__":
    sys.exit(main())
