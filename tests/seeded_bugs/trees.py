"""Copies of the working tree, without files that git ignores, and patches to the copies.

Leaves the patches to the families, and running code in a copy to `searches`.

Invariants: the working tree itself is only read. An edit that does not match exactly once is an
error, and changes nothing.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.seeded_bugs.seeded_bug import Edit, SeededBug

ROOT: Final = Path(__file__).parents[2]


class PatchError(Exception):
    """An edit does not fit the tree."""


def listed_files(root: Path) -> list[str]:
    """List the files of a working tree that git tracks, or would if they were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [path for path in listing.stdout.split("\0") if path and (root / path).is_file()]


def changed_files(root: Path, since: str) -> frozenset[str]:
    """Return the files that differ from a commit, or in a range of commits.

    Raises CalledProcessError if git does not know it.
    """
    command = ["git", "diff", "--name-only", "-z", since, "--"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return frozenset(listing.stdout.split("\0")) - {""}


def copy_listed(root: Path, target: Path) -> None:
    """Copy those files in their current state."""
    for path in listed_files(root):
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, copy)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a complete directory, with its compiled modules.

    The copy shares its files with the source until they are replaced. No process may write into an
    existing file.
    """
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def patched_text(edits: tuple[Edit, ...], path: str, text: str) -> str:
    """Return a file's text with its edits applied in order. Raises PatchError."""
    for edit in edits:
        if edit.path != path:
            continue
        found = text.count(edit.old)
        if found != 1:
            first = edit.old.strip().splitlines()[0]
            raise PatchError(f"{path}: {found} places match {first!r}, not one")
        text = text.replace(edit.old, edit.new)
    return text


def patched_files(bug: SeededBug, root: Path) -> dict[str, str]:
    """Return the new text of every file that a bug changes. Raises PatchError."""
    return {path: patched_text(bug.edits, path, (root / path).read_text()) for path in bug.paths}


def apply_bug(bug: SeededBug, root: Path) -> None:
    """Patch a copy. Raises PatchError."""
    for path, text in patched_files(bug, root).items():
        (root / path).unlink()  # other copies may share it
        (root / path).write_text(text)


def environment(root: Path) -> dict[str, str]:
    """Return the environment in which a copy's own modules are imported."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    return {**kept, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"}
