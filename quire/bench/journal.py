"""Journal of a load process: after a SIGKILL no acknowledged append is missing from it.

Format: a directory with `acks`, 32 bytes for each acknowledged append, little-endian: number u64,
ledger id u64, entry id u64, moment f64 (time.monotonic, which all processes of a machine share);
and `notes`, one JSON object per line with `kind` and `at`.

Invariants: what was written is passed to the kernel before the next iteration of the event loop; a
torn last record is not read.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final

ACK: Final = Struct("<QQQd")
ACKS_NAME: Final = "acks"
NOTES_NAME: Final = "notes"

Note = Mapping[str, Any]
"""One decoded JSON object, as read from outside the process."""


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged append."""

    number: int
    ledger_id: int
    entry_id: int
    at: float


class JournalWriter:
    """Writer of one journal; belongs to the running event loop."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._acks: IO[bytes] = (directory / ACKS_NAME).open("ab", buffering=0)
        self._notes: IO[bytes] = (directory / NOTES_NAME).open("ab", buffering=0)
        self._gathered = bytearray()

    def acknowledge(self, ack: Ack) -> None:
        """Write an acknowledged append, together with the others of this iteration of the event
        loop.
        """
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self.flush)
        self._gathered += ACK.pack(ack.number, ack.ledger_id, ack.entry_id, ack.at)

    def note(self, kind: str, at: float, fields: Mapping[str, object] | None = None) -> None:
        """Write an event."""
        text = json.dumps({"kind": kind, "at": at, **(fields or {})}, default=str)
        self._notes.write(text.encode() + b"\n")

    def flush(self) -> None:
        """Pass the buffered records to the kernel."""
        if self._gathered:
            self._acks.write(self._gathered)
            self._gathered.clear()

    def close(self) -> None:
        """Write the buffered records, and close."""
        self.flush()
        self._acks.close()
        self._notes.close()


@dataclass(frozen=True, slots=True)
class Journal:
    """Content of a journal."""

    acks: tuple[Ack, ...] = ()
    notes: tuple[Note, ...] = ()

    def of_kind(self, kind: str) -> list[Note]:
        """Return the notes of one kind, in order."""
        return [note for note in self.notes if note["kind"] == kind]


def read_journal(directory: Path) -> Journal:
    """Read what has been written so far; an empty journal if there is none yet."""
    if not (directory / NOTES_NAME).exists():
        return Journal()
    data = (directory / ACKS_NAME).read_bytes()
    whole = len(data) - len(data) % ACK.size
    acks = tuple(Ack(*fields) for fields in ACK.iter_unpack(data[:whole]))
    lines = (directory / NOTES_NAME).read_bytes().split(b"\n")[:-1]
    return Journal(acks, tuple(json.loads(line) for line in lines))
