"""Runs the simulation of topics from the command line.

Leaves reading it, and what is printed, to `tests.simulation.command`.
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
    """Run what was asked for; return the exit status."""
    return run_command(TOPICS, arguments)


if __name__ == "__main__":
    sys.exit(main())
