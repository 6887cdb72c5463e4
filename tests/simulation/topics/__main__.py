"""Command-line entry point of the simulation of topics.

Leaves arguments and output to `tests.simulation.command`.
"""

import sys
from collections.abc import Sequence
from typing import Final

from tests.simulation.command import Simulation, run_command
from tests.simulation.topics.topic_plan import THEMES, theme_of
from tests.simulation.topics.topic_run import run_topics_seed

TOPICS: Final = Simulation(
    "python -m tests.simulation.topics", tuple(THEMES), theme_of, run_topics_seed
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulations that the arguments request; return the exit status."""
    return run_command(TOPICS, arguments)


if __name__ == "__main__":
    sys.exit(main())
