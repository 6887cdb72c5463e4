"""Command-line entry point of the simulation of ledgers.

Leaves arguments and output to `tests.simulation.command`.
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
    """Run the simulations that the arguments request; return the exit status."""
    return run_command(LEDGERS, arguments)


if __name__ == "__main__":
    sys.exit(main())
