"""Mutants that no test can notice, each with the reason.

Leaves judging to `session`, and that every entry still fits the code to `test_mutation`.

Format of `equivalent/*.toml`, one file for each package: tables `[[equivalent]]` with `module`,
`function`, `line` (the text of the line, without its indentation), `changes` (a list, as
`python -m tests.mutation` prints them) and `reason`. A key holds no line number, so that it stays
while other lines change.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent / "equivalent"
FIELDS: Final = ("module", "function", "line", "changes", "reason")
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Explained:
    """Changes of one line that change nothing that matters."""

    module: str
    function: str
    line: str
    changes: tuple[str, ...]
    reason: str

    @property
    def keys(self) -> list[Key]:
        """Keys of its mutants (`mutants.Mutant.key`)."""
        return [(self.module, self.function, self.line, change) for change in self.changes]


def read_all() -> list[Explained]:
    """Read every entry. Raises ValueError for one that is not of the format."""
    found = []
    for path in sorted(DIRECTORY.glob("*.toml")):
        for entry in tomllib.loads(path.read_text()).get("equivalent", []):
            if tuple(sorted(entry)) != tuple(sorted(FIELDS)):
                raise ValueError(
                    f"{path.name}: an entry has the fields {', '.join(FIELDS)}: {entry}"
                )
            found.append(Explained(**{**entry, "changes": tuple(entry["changes"])}))
    return found


def reasons() -> dict[Key, str]:
    """Return the reason for each explained mutant."""
    return {key: explained.reason for explained in read_all() for key in explained.keys}
