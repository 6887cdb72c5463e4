"""Errors inside a bookie, one class per fact.

Leaves refusals that are sent to a client to `bookie.wire.messages.Status`.

`retriable` of a class says whether the same call may be repeated.
"""

from typing import ClassVar

from quire.copyable import CopyableError


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
