"""One file with what is known of a cluster, for a report of a problem. It has no secrets.

Leaves what is written to the command, which adds the parts.

Format: a tar file, compressed by gzip, with one directory. `notes.txt` in it says what could not be
read, and what was cut.

Invariants: the file is readable by its owner alone, and does not replace another; a part has at
most PART_BYTES_MAX, and all together at most BYTES_MAX before compression.
"""

import io
import json
import os
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from quire.errors import UsageError
from quire.operate.fields import Json

PART_BYTES_MAX: Final = 8 * 1024 * 1024
BYTES_MAX: Final = 64 * 1024 * 1024
DIRECTORY: Final = "quire-report"
NOTES: Final = "notes.txt"


class Bundle:
    """A bundle that is written; use it in a `with` block."""

    def __init__(self, path: Path, time_s: int) -> None:
        """Create the file. Raises UsageError if it exists, or cannot be made."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be made ({error.strerror})", try_next="name a new file"
            ) from error
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115 - closed at the end
        self._time_s = time_s
        self._left = BYTES_MAX
        self._notes: list[str] = []
        self.parts: list[str] = []
        """Names of the parts, in order."""
        self.file_bytes = 0
        """Size of the file, once it is closed."""

    def __enter__(self) -> Self:
        """Return the bundle."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the notes, and close the file."""
        if error is None:
            self._write(NOTES, "\n".join(self._notes or ["everything was read"]).encode() + b"\n")
        self._tar.close()
        self.file_bytes = self._file.tell()
        self._file.close()

    def note(self, text: str) -> None:
        """Note what could not be read."""
        self._notes.append(text)

    def add_json(self, name: str, value: Json) -> None:
        """Add a part as JSON."""
        self.add(name, json.dumps(value, indent=1))

    def add(self, name: str, text: str) -> None:
        """Add a part, as much of it as has room."""
        data = text.encode()
        room = min(PART_BYTES_MAX, self._left)
        if len(data) > room:
            self.note(f"{name} is cut after {room} of {len(data)} B")
            data = data[:room]
        self._left -= len(data)
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(f"{DIRECTORY}/{name}")
        info.size, info.mode, info.mtime = len(data), 0o600, self._time_s
        self._tar.addfile(info, io.BytesIO(data))
        self.parts.append(name)
