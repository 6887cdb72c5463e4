"""Errors that prevent a bookie's start or setup, one class per fact.

Leaves failures of its disk to `bookie.errors`. A client receives a `Status`, never one of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bookie.errors import BookieError
from quire.server.overriding import override


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
    """Another process serves as this bookie (rule 2.6). Nothing was written, unless this start was
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
    """Another process stays registered as this bookie and does not answer (rule 2.6). Nothing was
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
    """Another process recorded its position as this bookie (rule 2.6), so this process must not
    answer any more.
    """

    def __init__(self, bookie_id: str) -> None:
        super().__init__(
            f"another process has recorded its position as bookie {bookie_id}; this process stops "
            "before its next answer. It may be a resumed virtual machine, or one of two copies of "
            "a directory: keep the one that serves now and remove the other"
        )
        self.bookie_id = bookie_id


class DirectoryLostError(BookieError):
    """A directory of a running bookie was removed, replaced or unmounted (rule 2.6), so what it
    stores is lost when it ends: it stops.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        names = ", ".join(f"{each}/" for each in directories)
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


def _effect(*, is_counted: bool) -> str:
    if is_counted:
        return "This start was counted, so the other process will be in limbo after its next start"
    return "Nothing was changed"
