"""Lock file: the packages that a server installs, with versions and hashes.

Leaves writing the file to `make lock`, and what must be in it to tests/tidy/test_lock.py.

Format: that of pip, as uv writes it. A package is one logical line, `name==version`, perhaps
`; marker`, then `--hash=sha256:...` for each file of the release. Comments under it, `# via`,
name the packages that require it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from quire.distribution import DISTRIBUTION

PROJECT: Final = f"{DISTRIBUTION} (pyproject.toml)"
"""How the file names the project itself."""
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_VIA: Final = "via"


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of the file."""

    requirement: Requirement
    hashes: tuple[str, ...]
    required_by: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name, as an index writes it."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """Its only version."""
        (specifier,) = self.requirement.specifier
        return specifier.version


def parse_lock(text: str) -> list[LockedPackage]:
    """Parse the file. Raises ValueError for a line that is not a package with hashes."""
    packages, words, reasons = list[LockedPackage](), list[str](), list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if content.startswith("#"):
            reasons.append(content.removeprefix("#").strip())
            continue
        if line and not line[0].isspace():
            packages += _package(words, reasons)
            words, reasons = [], []
        if not content or (not words and line[0].isspace()):
            raise ValueError(f"line {number} belongs to no package: {line!r}")
        words.append(content.removesuffix("\\").strip())
    return packages + _package(words, reasons)


def _package(lines: Sequence[str], reasons: Sequence[str]) -> list[LockedPackage]:
    """Return the package of some lines; none for the comments before the first."""
    if not lines:
        return []
    requirement, hashes = Requirement(lines[0]), tuple(lines[1:])
    (specifier,) = requirement.specifier or [None]
    if requirement.url or specifier is None or specifier.operator != "==":
        raise ValueError(f"{requirement.name} is not locked to one version: {lines[0]!r}")
    if not hashes or not all(_HASH.fullmatch(hash_value) for hash_value in hashes):
        raise ValueError(f"{requirement.name} has something else than hashes: {lines[1:3]}")
    via = [reason.removeprefix(_VIA).strip() for reason in reasons]
    return [LockedPackage(requirement, hashes, tuple(each for each in via if each))]
