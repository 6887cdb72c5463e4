"""Versions of a cluster's servers: the oldest, and whether a rolling upgrade is complete. Pure.

Leaves reading the registrations to `quire.cli.cluster`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NAMED_MAX: Final = 10
"""Maximum number of servers that the sentence names."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """Version of one server, and the lowest and highest version that it speaks."""

    kind: str
    name: str
    build: str
    wire: str
    """For people, for example `1-2`."""

    @property
    def what(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


def oldest_build(servers: Sequence[ServerVersion]) -> str | None:
    """Return the oldest version; None without servers."""
    return min((each.build for each in servers), key=_rank, default=None)


def upgrade_sentence(servers: Sequence[ServerVersion]) -> str:
    """Say whether all servers run the newest version among them."""
    if not servers:
        return "No server is up."
    newest = max((each.build for each in servers), key=_rank)
    behind = [each for each in servers if each.build != newest]
    count = len(servers)
    if not behind:
        return f"All {count} servers run {newest}." if count > 1 else f"The server runs {newest}."
    older = list(dict.fromkeys(each.build for each in behind))
    shown = [each.what if len(older) == 1 else f"{each.what} ({each.build})" for each in behind]
    names = ", ".join(shown[:NAMED_MAX])
    if len(shown) > NAMED_MAX:
        names += f", and {len(shown) - NAMED_MAX} more"
    if len(older) == 1:
        runs = "runs" if len(behind) == 1 else "run"
        return f"{len(behind)} of {count} servers still {runs} {older[0]}: {names}."
    return f"{len(behind)} of {count} servers do not run {newest} yet: {names}."


def _rank(build: str) -> tuple[tuple[int, ...], str]:
    """Order versions by their numbers."""
    return tuple(int(each) for each in _NUMBER.findall(build)), build
