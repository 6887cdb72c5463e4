"""Playback of transcripts of a pure protocol, and the comparison with the expected actions.

Leaves the words of each protocol to its player (`append_player.py`, `recovery_player.py`, ...), and
collecting the files under pytest to `test_scenarios.py`.

Format of `tests/scenarios/*/*.txt` (one folder for each protocol or mode):

    # Why this matters, and its rule (protocol 7.3): any number of comment lines.
    protocol recovery
    quorum 3/3/2                                  <- set-up: `name value`, the player's own words
    fragments 0:a,b,c

    fence-answered a lac=4                        <- a step: one or more events, one per line
    fence-answered b lac=3
    ----
    read a 5..1023                                <- the expected actions of all of them, one per
    read b 5..1023                                   line, in order; if there are none: `(nothing)`

- The first paragraph after the comments is the set-up; `protocol NAME` picks the player. Every
  further paragraph is a step; paragraphs are separated by blank lines.
- A line that starts with `#` is a comment; in a step it is above the events and is kept.
- A player is built from the set-up and turns one event line into the lines of its actions.
- `python -m tests.scenarios.runner --rewrite [file ...]` replaces the expected actions
  by the actual ones, for review in the diff. Without the option it only prints the differences.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

DIRECTORY: Final = Path(__file__).parent
SEPARATOR: Final = "----"
NOTHING: Final = "(nothing)"

PLAYERS: Final[Mapping[str, str]] = {
    "departures": "tests.scenarios.departures_player:DeparturesPlayer",
    "repair": "tests.scenarios.repair_player:RepairPlayer",
    "append": "tests.scenarios.append_player:AppendPlayer",
    "handle": "tests.scenarios.read_player:HandlePlayer",
    "loss": "tests.scenarios.loss_player:LossPlayer",
    "metadata": "tests.scenarios.metadata_player:MetadataPlayer",
    "placement": "tests.scenarios.placement_player:PlacementPlayer",
    "read": "tests.scenarios.read_player:ReadPlayer",
    "roles": "tests.scenarios.roles_player:RolesPlayer",
    "rolling": "tests.scenarios.rolling_player:RollingPlayer",
    "bookie": "tests.scenarios.bookie_player:BookiePlayer",
    "recovery": "tests.scenarios.recovery_player:RecoveryPlayer",
}
"""Player of each protocol, imported only when a transcript names it."""


class Player(Protocol):
    """Drives one protocol object with the words of a transcript."""

    def play(self, words: Sequence[str]) -> list[str]:
        """Pass one event to the protocol; return its actions as lines."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """Events, and the lines of their actions."""

    comments: tuple[str, ...]
    events: tuple[str, ...]
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One transcript."""

    name: str
    comments: tuple[str, ...]
    protocol: str
    setup: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]


class ScenarioError(Exception):
    """A transcript does not have the format that this module describes."""


def scenario_files() -> list[Path]:
    """List every transcript."""
    return sorted(DIRECTORY.glob("*/*.txt"))


def name_of(path: Path) -> str:
    """Return a transcript's folder and name, as in `append/confirms_in_order`."""
    return f"{path.parent.name}/{path.stem}"


def parse(name: str, text: str) -> Scenario:
    """Read one transcript. Raises ScenarioError."""
    paragraphs = [p.splitlines() for p in text.split("\n\n") if p.strip()]
    if not paragraphs:
        raise ScenarioError(f"{name}: empty")
    comments, lines = _split_comments(paragraphs[0])
    if not comments:
        raise ScenarioError(f"{name}: say why, in comment lines at the top")
    if not lines:  # the set-up may stand apart from the reason
        if len(paragraphs) == 1:
            raise ScenarioError(f"{name}: no set-up")
        paragraphs.pop(0)
        _none, lines = _split_comments(paragraphs[0])
    setup: list[tuple[str, str]] = []
    protocol = ""
    for line in lines:
        word, _space, value = line.strip().partition(" ")
        if word == "protocol":
            protocol = value.strip()
        else:
            setup.append((word, value.strip()))
    if protocol not in PLAYERS:
        raise ScenarioError(f"{name}: no `protocol` line that names one of {', '.join(PLAYERS)}")
    steps = tuple(_parse_step(name, lines) for lines in paragraphs[1:])
    return Scenario(name, comments, protocol, tuple(setup), steps)


def play(scenario: Scenario) -> Scenario:
    """Return the scenario with the actual actions in place of the expected ones."""
    player = _player_class(scenario.protocol)(dict(scenario.setup))
    steps = []
    for step in scenario.steps:
        happened: list[str] = []
        for event in step.events:
            happened += player.play(event.split())
        steps.append(replace(step, expected=tuple(happened or [NOTHING])))
    return replace(scenario, steps=tuple(steps))


def render(scenario: Scenario) -> str:
    """Write a scenario as a transcript."""
    setup = [f"protocol {scenario.protocol}", *(f"{n} {v}".rstrip() for n, v in scenario.setup)]
    paragraphs = [[*scenario.comments, *setup]]
    paragraphs += [[*s.comments, *s.events, SEPARATOR, *s.expected] for s in scenario.steps]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def _split_comments(lines: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    comments = tuple(line for line in lines if line.startswith("#"))
    return comments, [line for line in lines if not line.startswith("#")]


def _parse_step(name: str, lines: Sequence[str]) -> Step:
    comments, rest = _split_comments(lines)
    if rest.count(SEPARATOR) != 1:
        raise ScenarioError(f"{name}: a step has one {SEPARATOR} line: {' / '.join(rest)}")
    middle = rest.index(SEPARATOR)
    events, expected = tuple(rest[:middle]), tuple(rest[middle + 1 :])
    if not events:
        raise ScenarioError(f"{name}: a step without an event before {' / '.join(expected)}")
    return Step(comments, events, expected)


def _player_class(protocol: str) -> Callable[[Mapping[str, str]], Player]:
    module, _colon, class_name = PLAYERS[protocol].partition(":")
    player_class: Callable[[Mapping[str, str]], Player] = getattr(import_module(module), class_name)
    return player_class


def main(arguments: Sequence[str]) -> int:
    """Play the given transcripts, or all; `--rewrite` updates them. Return 1 if any differs."""
    rewrite = "--rewrite" in arguments
    paths = [
        Path(argument) for argument in arguments if not argument.startswith("-")
    ] or scenario_files()
    differing = 0
    for path in paths:
        scenario = parse(path.name, path.read_text())
        happened = play(scenario)
        if happened == scenario:
            continue
        differing += 1
        sys.stdout.write(f"{'rewritten' if rewrite else 'differs'}: {path}\n")
        if rewrite:
            path.write_text(render(happened))
    return 1 if differing and not rewrite else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
