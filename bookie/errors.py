"""Errors inside a bookie, and those that prevent its start or setup, one class per fact.

A client receives a `bookie.wire.messages.Status`, never one of these. `retriable` of a class says
whether the same call may be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from quire.copyable import CopyableError
from quire.server.overriding import override


class BookieError(CopyableError):
    """Base class of all errors of a bookie."""

    retriable: ClassVar[bool] = False


class DiskFailedError(BookieError):
    """The device reported an error of a write or a sync. Its content is unknown, so the bookie
    stops and does not retry.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what}: the disk failed ({why}); the bookie stops. Replace the disk, or start it "
            "again to replay what was durable"
        )
        self.what = what
        self.why = why


class NotPermittedError(DiskFailedError):
    """The user of this process may not use a file or directory. The disk is not at fault."""

    def __init__(self, what: str, why: str) -> None:
        BookieError.__init__(
            self,
            f"{what}: this user may not use it ({why}); the bookie stops. Give its files to the"
            " user that runs the bookie (chown -R), or run it as their owner; nothing is damaged",
        )
        self.what = what
        self.why = why


class UnreadableError(DiskFailedError):
    """The device cannot read some stored bytes. Other bytes, and writes, may still work."""


class DiskFullError(BookieError):
    """There is no room for the bytes. None of them counts as stored."""

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: no space left; free some, or add bookies")
        self.what = what


class SyncFullError(DiskFullError):
    """A sync found no room. It is unknown which unsynced bytes are durable, and another sync of the
    same file proves nothing.
    """


class DescriptorsExhaustedError(BookieError):
    """This process or the system has no free file descriptor. The disk is not at fault."""

    retriable = True

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} cannot be opened now ({why}). Raise the limit of open files, or try again"
        )
        self.what = what
        self.why = why


class DiskTooSmallError(BookieError):
    """The disk has no room for the reserve and two log files, so a bookie would never be
    writable.
    """

    def __init__(self, total_bytes: int, free_bytes: int, needed_bytes: int, parts: str) -> None:
        super().__init__(
            f"the disk has {total_bytes} bytes, {free_bytes} of them free below its high mark; a "
            f"bookie needs {needed_bytes}: {parts}. Set a smaller reserve_bytes_min or "
            "segment_bytes_max, or give it a larger disk"
        )
        self.needed_bytes = needed_bytes


class IndexFileError(BookieError):
    """The index's file lacks pages that it uses, or the disk cannot read them. The file was not
    opened and is not changed.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} is damaged: {why}; nothing was changed. With the bookie stopped, run: quire "
            "bookie rebuild-index DIR"
        )
        self.what = what
        self.why = why


class FormatError(BookieError):
    """A file does not have its expected format, or a newer release wrote it. It is not changed."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} cannot be read: {why}; nothing was changed")
        self.what = what
        self.why = why


class DamagedRecordError(BookieError):
    """Stored bytes do not match their checksum: their content is unknown (rule 2.4)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is damaged: another replica has it")
        self.what = what


class DirectoryLockedError(BookieError):
    """Another process holds the directory (rule 2.2)."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} is in use by another process: stop that one first")
        self.directory = directory


class StorageClosedError(BookieError):
    """The storage was closed, or stopped by a disk failure."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Field in which two cookies differ."""

    field: str
    found: str
    expected: str

    @override
    def __str__(self) -> str:
        return f"{self.field} is {self.found}, expected {self.expected}"


class CookieMissingError(BookieError):
    """A directory or the metadata service has no cookie of this bookie (rule 2.2)."""

    def __init__(self, where: str, why: str, repair: str) -> None:
        super().__init__(f"{where} {why}. {repair}")
        self.where = where
        self.repair = repair


class CookieMismatchError(BookieError):
    """A directory has the cookie of another bookie or of another directory (rule 2.2)."""

    def __init__(self, where: str, differences: Sequence[Difference], repair: str) -> None:
        listed = "; ".join(map(str, differences))
        super().__init__(f"{where} does not belong to this bookie: {listed}. {repair}")
        self.where = where
        self.differences = tuple(differences)
        self.repair = repair


class CookieDamagedError(BookieError):
    """A cookie cannot be decoded. Nothing was changed."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the cookie in {where} cannot be read: {why}. Restore it from another directory of "
            "the same bookie, or give the bookie empty directories and run `quire bookie format`"
        )
        self.where = where


class AlreadyFormattedError(BookieError):
    """The directories to format are in use or not empty."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} {why}. Format creates new bookies only: give it an empty directory, or start "
            "the bookie that is there with `quire bookie run`"
        )
        self.where = where


class OriginalLivesError(BookieError):
    """Another process serves as this bookie (rule 2.8). Nothing was written, unless this start was
    already counted.
    """

    def __init__(self, bookie_id: str, address: str, *, is_counted: bool = False) -> None:
        super().__init__(
            f"bookie {bookie_id} is served by another process, at {address}: this directory is a "
            f"copy of its directory. {_effect(is_counted=is_counted)}. Keep that process running "
            "and remove the copy; to add a bookie, run `quire bookie format` in empty directories"
        )
        self.bookie_id = bookie_id
        self.address = address


class OriginalRegisteredError(BookieError):
    """Another process stays registered as this bookie and does not answer (rule 2.8). Nothing was
    written, unless this start was already counted.
    """

    def __init__(
        self, bookie_id: str, address: str, waited_s: float, *, is_counted: bool = False
    ) -> None:
        super().__init__(
            f"bookie {bookie_id} is still registered by another process, at {address}, after "
            f"{waited_s:.0f} s: it keeps its session but does not answer here. "
            f"{_effect(is_counted=is_counted)}. Stop that process, or connect this machine to its "
            "address, and start again"
        )
        self.bookie_id = bookie_id
        self.address = address


class PositionTakenError(BookieError):
    """Another process recorded its position as this bookie (rule 2.7), so this process must not
    answer any more.
    """

    def __init__(self, bookie_id: str) -> None:
        super().__init__(
            f"another process has recorded its position as bookie {bookie_id}; this process stops "
            "before its next answer. It may be a resumed virtual machine, or one of two copies of "
            "a directory: keep the one that serves now and remove the other. If it started while "
            "the metadata service was an older one: start it again"
        )
        self.bookie_id = bookie_id


class DirectoryLostError(BookieError):
    """A directory of a running bookie was removed, replaced or unmounted (rule 2.9), so what it
    stores is lost when it ends: it stops.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        names = ", ".join(f"{directory}/" for directory in directories)
        super().__init__(
            f"{names} was removed, replaced or unmounted while the bookie ran; it stops, because "
            "what it stores there is lost when it ends. Put the disk back and start the bookie "
            "again; or, if the data is lost, give it empty directories and run `quire bookie "
            "format`: it joins as a new bookie, and the lost bookie's ledgers are repaired"
        )
        self.directories = tuple(directories)


class BookieRemovedError(BookieError):
    """An operator removed this bookie from the cluster: it never serves again."""

    def __init__(self, bookie_id: str, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"bookie {bookie_id} was removed from the cluster{why}: it never serves again, and "
            "nothing needs its directories. Stop starting it; to add a bookie on this machine, run "
            "`quire bookie format` in empty directories"
        )
        self.bookie_id = bookie_id
        self.reason = reason


FINAL: Final = (
    NotPermittedError,
    IndexFileError,
    FormatError,
    CookieMissingError,
    CookieMismatchError,
    CookieDamagedError,
    OriginalLivesError,
    PositionTakenError,
    BookieRemovedError,
)
"""Errors that a start again cannot cure: an operator must do something first."""


def _effect(*, is_counted: bool) -> str:
    if is_counted:
        return "This start was counted, so the other process will be in limbo after its next start"
    return "Nothing was changed"
