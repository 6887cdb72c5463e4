"""Settings of repair: ranges, defaults and stored form."""

from dataclasses import asdict, replace

import msgpack
import pytest

from metadata.errors import InvalidRepairSettingError, MetadataFormatError
from metadata.repair.settings import (
    DEFAULTS,
    SETTINGS_CODEC,
    RepairSettings,
    check_settings,
    merged_settings,
    settings_of,
)

OTHER = replace(DEFAULTS, lost_after_s=60, bytes_per_s=0, paused_until_ms=1_700_000_000_000)


def test_every_setting_has_a_range_and_a_default_in_it() -> None:
    check_settings(asdict(DEFAULTS))


@pytest.mark.parametrize("settings", [DEFAULTS, OTHER])
def test_settings_round_trip(settings: RepairSettings) -> None:
    stored = merged_settings(None, asdict(settings))
    assert settings_of(SETTINGS_CODEC.unpack("/s", SETTINGS_CODEC.pack("/s", stored))) == settings


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("speed", 1, "there is no such setting; use lost_after_s, urgent_after_s,"),
        ("lost_after_s", 0, "use 1 to 31536000"),
        ("bytes_per_s", -1, "use 0 to"),
        ("fragments_per_bookie", 101, "use 1 to 100"),
    ],
)
def test_a_wrong_setting_is_refused(name: str, value: int, why: str) -> None:
    with pytest.raises(InvalidRepairSettingError) as raised:
        check_settings({"lost_after_s": 60, name: value})
    assert f"repair's setting '{name}' cannot be {value}: {why}" in str(raised.value)


def test_a_wrong_setting_is_not_stored() -> None:
    with pytest.raises(InvalidRepairSettingError):
        merged_settings(None, {"lost_after_s": 0})


def test_a_change_keeps_what_it_does_not_name() -> None:
    stored = msgpack.packb([1, {"lost_after_s": 60, "of_a_newer_release": ["any"]}])
    merged = merged_settings(SETTINGS_CODEC.unpack("/s", stored), {"bytes_per_s": 7})
    expected = [1, {"bytes_per_s": 7, "lost_after_s": 60, "of_a_newer_release": ["any"]}]
    assert msgpack.unpackb(SETTINGS_CODEC.pack("/s", merged)) == expected
    assert settings_of(merged) == replace(DEFAULTS, lost_after_s=60, bytes_per_s=7)
    assert merged_settings(merged, {"bytes_per_s": 7}) == merged


@pytest.mark.parametrize(
    "stored",
    [
        [1, {"lost_after_s": 0}],
        [1, {"lost_after_s": True}],
        [1, {"lost_after_s": "60"}],
        [1, []],
        [1],
        [2, {}],
    ],
)
def test_other_values_are_a_format_error(stored: list[object]) -> None:
    with pytest.raises(MetadataFormatError, match="/s"):
        SETTINGS_CODEC.unpack("/s", msgpack.packb(stored))
