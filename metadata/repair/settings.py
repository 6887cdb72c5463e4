"""What operators set for repair, and its bytes. Pure.

Leaves storing and following the settings to `settings_store.py`.

A name that is not stored has the default of the release that reads it.

Invariant: a stored name that this release does not know is kept, because another release wrote it.

Source: protocol rule 9.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, get_type_hints

from metadata.errors import InvalidRepairSettingError
from metadata.msgpack_fields import Packed
from metadata.records import TABLE, Whole, checked, codec_of_one, form_of, whole

_DAY_S: Final = 24 * 3600
_YEAR_S: Final = 365 * _DAY_S
_Rate = Annotated[int, whole(0, 10**12, unit="bytes per second")]
_Time = Annotated[int, whole(0, 2**53, unit="ms")]


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """Settings of repair in one cluster. All processes follow them, so a change is live."""

    lost_after_s: Annotated[int, whole(1, _YEAR_S, unit="s")] = 600
    """Seconds for which a bookie is away before it is lost: its copies are then made elsewhere."""
    urgent_after_s: Annotated[int, whole(1, _YEAR_S, unit="s")] = 60
    """The same in seconds, for entries that have one good copy left."""
    bytes_per_s: _Rate = 50_000_000
    """Ceiling of all copying in the cluster, in bytes per second; 0 for no ceiling."""
    bookie_bytes_per_s: _Rate = 25_000_000
    """Ceiling of copying to one bookie, in bytes per second; 0 for no ceiling."""
    source_bytes_per_s: _Rate = 25_000_000
    """Ceiling of copying from one bookie, in bytes per second; 0 for no ceiling."""
    append_p99_ms_max: Annotated[int, whole(0, 10_000, unit="ms")] = 100
    """Copies from and to a bookie are slowed while the p99 of clients' appends there is above it,
    in ms; 0 for never.
    """
    move_misplaced: Annotated[int, whole(0, 1)] = 1
    """1 if copies that share a rack or a host are moved when a better place exists; else 0."""
    fragments_per_bookie: Annotated[int, whole(1, 100)] = 2
    """Maximum number of fragments that one worker copies to one bookie at once."""
    paused_until_ms: _Time = 0
    """Time until which nothing is copied, in ms since 1970; 0 for never paused."""
    scrub_bytes_per_s: _Rate = 4_000_000
    """Bytes per second that one bookie reads to check what it stores; 0 for no checks at all."""
    scrub_every_s: Annotated[int, whole(0, _YEAR_S, unit="s")] = 7 * _DAY_S
    """Seconds from the start of one scrub of a bookie to the next; 0 for scrubs on request only."""
    scrub_requested_ms: _Time = 0
    """Time of the last request to scrub every bookie, in ms since 1970; 0 for no request."""


DEFAULTS: Final = RepairSettings()

_FORMS: Final[Mapping[str, Whole]] = MappingProxyType(
    {
        name: form
        for name, hint in get_type_hints(RepairSettings, include_extras=True).items()
        if isinstance(form := form_of(hint), Whole)
    }
)


def check_settings(values: Mapping[str, int]) -> None:
    """Raise InvalidRepairSettingError for a name that this release does not know, and for a value
    outside its range.
    """
    for name, value in values.items():
        if name not in _FORMS:
            known = ", ".join(_FORMS)
            raise InvalidRepairSettingError(name, value, f"there is no such setting; use {known}")
        low, high = _FORMS[name].low, _FORMS[name].high
        if not low <= value <= high:
            raise InvalidRepairSettingError(name, value, f"use {low} to {high}")


def settings_of(stored: Mapping[str, Packed] | None) -> RepairSettings:
    """Return the settings by what is stored; None is nothing. Raises ValueError."""
    known = stored or {}
    return RepairSettings(
        **{name: form.unpack(known[name]) for name, form in _FORMS.items() if name in known}
    )


SETTINGS_CODEC: Final = codec_of_one("settings", checked(TABLE, settings_of))


def merged_settings(
    stored: Mapping[str, Packed] | None, values: Mapping[str, int]
) -> dict[str, Packed]:
    """Return what to store after a change of some settings; all others stay as they are stored.
    Raises InvalidRepairSettingError.
    """
    check_settings(values)
    changed: dict[str, Packed] = {**(stored or {}), **values}
    return {name: changed[name] for name in sorted(changed)}
