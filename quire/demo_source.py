"""Source of the demo's lines: a file, or the source text of Python's standard library.

Leaves appending them to `quire.demo`.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quire.errors import UsageError

LINE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a line; longer lines become several entries."""


class DemoSource:
    """Some files, read one after the other as lines, with the count and hash of the bytes read so
    far.
    """

    def __init__(self, name: str, paths: list[Path]) -> None:
        self.name = name
        self._paths = paths
        self._hash = hashlib.sha256()
        self.total_bytes = sum(path.stat().st_size for path in paths)
        self.read_bytes = 0
        self.line_count = 0

    def lines(self) -> Iterator[bytes]:
        """Yield every line with its newline; together the lines are the files' bytes."""
        for path in self._paths:
            with path.open("rb") as file:
                while line := file.readline(LINE_BYTES_MAX):
                    self._hash.update(line)
                    self.read_bytes += len(line)
                    self.line_count += 1
                    yield line

    @property
    def share_read(self) -> float:
        """Share of the bytes read so far, from 0 to 1."""
        return self.read_bytes / self.total_bytes if self.total_bytes else 1.0

    def digest(self) -> str:
        """Return the SHA-256 of the bytes read so far."""
        return self._hash.hexdigest()


def open_source(file: str | None) -> DemoSource:
    """Return the given file, or the complete standard library of this Python. Raises UsageError."""
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise UsageError(
                f"{file} is not a file that can be read", try_next="quire demo (without --file)"
            )
        return DemoSource(path.name, [path])
    library = Path(sysconfig.get_path("stdlib"))
    outside = ("site-packages", "dist-packages")
    paths = sorted(
        path
        for path in library.rglob("*.py")
        if path.is_file() and not any(name in path.parts for name in outside)
    )
    if not paths:
        raise UsageError(
            f"there is no source text of the standard library in {library}",
            try_next="quire demo --file FILE",
        )
    return DemoSource(f"the standard library of Python, {len(paths)} files", paths)
