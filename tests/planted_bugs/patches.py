"""Bugs that a reviewer planted once, without looking at the tests: one patch of the product each.

Leaves running the tests to `__main__`.

Format of `<name>.patch`: one sentence on what is wrong, a line `Nearest: ` with paths of tests, the
nearest first, and a unified diff, which `git apply` takes.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NEAREST: Final = "Nearest: "
DIFF: Final = "diff --git a/"


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One patch, with its description."""

    patch: Path
    wrong: str
    nearest: tuple[str, ...]
    packages: tuple[str, ...]
    """Packages of the product that the patch changes."""

    @property
    def name(self) -> str:
        """What breaks."""
        return self.patch.stem

    def apply(self, tree: Path, *options: str) -> None:
        """Patch a tree. Raises CalledProcessError if the patch does not fit."""
        command = ["git", "apply", *options, str(self.patch)]
        subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)


def planted_bug(patch: Path) -> PlantedBug:
    """Read a patch. Raises ValueError if its description is not complete."""
    wrong, nearest, *rest = patch.read_text().splitlines()
    if not nearest.startswith(NEAREST):
        raise ValueError(f"{patch.name}: the second line does not begin with {NEAREST!r}")
    paths = [line.removeprefix(DIFF) for line in rest if line.startswith(DIFF)]
    packages = tuple(dict.fromkeys(path.partition("/")[0] for path in paths))
    return PlantedBug(patch, wrong, tuple(nearest.removeprefix(NEAREST).split()), packages)


BUGS: Final = tuple(planted_bug(path) for path in sorted(Path(__file__).parent.glob("*.patch")))
