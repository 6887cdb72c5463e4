"""What operators set for repair, and its bytes. Pure.

Leaves storing and following the settings to `settings_store.py`.

Format: the value of `/repair/settings` is a msgpack array [1, {name str: value int}]. A name that
is not stored has the default of the release that reads it.

Invariants: a stored name that this release does not know is kept, because another release wrote it;
for any bytes, decoding returns settings or raises MetadataFormatError.

Source: protocol rule 9.1.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from metadata.errors import InvalidRepairSettingError, MetadataFormatError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    int_of,
    map_of,
    pack_checked,
    unpack_versioned,
)

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 2
_DAY_S: Final = 24 * 3600
_YEAR_S: Final = 365 * _DAY_S
_MS_MAX: Final = 2**53
_BYTES_PER_S_MAX: Final = 10**12


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """Settings of repair in one cluster. All processes follow them, so a change is live."""

    lost_after_s: int = 600
    """Seconds for which a bookie is away before it is lost: its copies are then made elsewhere."""
    urgent_after_s: int = 60
    """The same in seconds, for entries that have one good copy left."""
    bytes_per_s: int = 50_000_000
    """Ceiling of all copying in the cluster, in bytes per second; 0 for no ceiling."""
    bookie_bytes_per_s: int = 25_000_000
    """Ceiling of copying to one bookie, in bytes per second; 0 for no ceiling."""
    source_bytes_per_s: int = 25_000_000
    """Ceiling of copying from one bookie, in bytes per second; 0 for no ceiling."""
    append_p99_ms_max: int = 100
    """Copies from and to a bookie are slowed while the p99 of clients' appends there is above it,
    in ms; 0 for never.
    """
    move_misplaced: int = 1
    """1 if copies that share a rack or a host are moved when a better place exists; else 0."""
    fragments_per_bookie: int = 2
    """Maximum number of fragments that one worker copies to one bookie at once."""
    paused_until_ms: int = 0
    """Time until which nothing is copied, in ms since 1970; 0 for never paused."""
    scrub_bytes_per_s: int = 4_000_000
    """Bytes per second that one bookie reads to check what it stores; 0 for no checks at all."""
    scrub_every_s: int = 7 * _DAY_S
    """Seconds from the start of one scrub of a bookie to the next; 0 for scrubs on request only."""
    scrub_requested_ms: int = 0
    """Time of the last request to scrub every bookie, in ms since 1970; 0 for no request."""


DEFAULTS: Final = RepairSettings()

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "lost_after_s": (1, _YEAR_S),
    "urgent_after_s": (1, _YEAR_S),
    "bytes_per_s": (0, _BYTES_PER_S_MAX),
    "bookie_bytes_per_s": (0, _BYTES_PER_S_MAX),
    "source_bytes_per_s": (0, _BYTES_PER_S_MAX),
    "append_p99_ms_max": (0, 10_000),
    "move_misplaced": (0, 1),
    "fragments_per_bookie": (1, 100),
    "paused_until_ms": (0, _MS_MAX),
    "scrub_bytes_per_s": (0, _BYTES_PER_S_MAX),
    "scrub_every_s": (0, _YEAR_S),
    "scrub_requested_ms": (0, _MS_MAX),
}


def check_settings(values: Mapping[str, int]) -> None:
    """Raise InvalidRepairSettingError for a name that this release does not know, and for a value
    outside its range.
    """
    for name, value in values.items():
        if name not in _RANGES:
            known = ", ".join(_RANGES)
            raise InvalidRepairSettingError(name, value, f"there is no such setting; use {known}")
        low, high = _RANGES[name]
        if not low <= value <= high:
            raise InvalidRepairSettingError(name, value, f"use {low} to {high}")


def merged_settings(what: str, stored: bytes | None, values: Mapping[str, int]) -> bytes:
    """Return the stored form after a change of some settings; all others stay as they are stored.

    Raises InvalidRepairSettingError, MetadataFormatError.
    """
    check_settings(values)
    kept = {} if stored is None else _stored_names(what, stored)
    changed: dict[str, Packed] = {**kept, **values}
    fields: list[Packed] = [_FORMAT_VERSION, {name: changed[name] for name in sorted(changed)}]
    return pack_checked(what, fields, partial(unpack_settings, what))


def pack_settings(what: str, settings: RepairSettings) -> bytes:
    """Return the stored form with every setting in it."""
    return merged_settings(what, None, asdict(settings))


def unpack_settings(what: str, value: bytes) -> RepairSettings:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    stored = _stored_names(what, value)
    try:
        known = {
            name: int_of(stored[name], low, high)
            for name, (low, high) in _RANGES.items()
            if name in stored
        }
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error
    return RepairSettings(**known)


def _stored_names(what: str, value: bytes) -> dict[str, Packed]:
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return map_of(fields[1])
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error
