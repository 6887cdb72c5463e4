"""Fields of rows as people read them."""

import pytest

from quire.operate.fields import describe_field, heading


@pytest.mark.parametrize(
    ("name", "value", "shown_name", "shown"),
    [
        ("created_ms", 1_769_862_605_000, "created", "2026-01-31 12:30:05 UTC"),
        ("paused_until_ms", None, "paused until", "-"),
        ("paused_until_ms", 0, "paused until", "-"),
        ("metadata_answer_ms", 2.7, "metadata answer ms", "2.70"),
        ("free_bytes", 85_242_560_512, "free bytes", "79.4 GiB"),
        ("bytes", 1_536, "bytes", "1.5 KiB"),
        ("length", 7, "length", "7 B"),
        ("bytes_per_s_max", 50_000_000, "bytes per s max", "47.7 MiB/s"),
        ("eta_s", 5_400, "eta", "1.5 h"),
        ("elapsed_s", 1.5, "elapsed s", "1.50"),
        ("is_writable", True, "is writable", "yes"),
        ("entries", 1_536, "entries", "1536"),
        ("conditions", [], "conditions", "-"),
        ("quorum", {"write": 3, "mode": "quorum"}, "quorum", "write=3, mode=quorum"),
        ("admin", {"free_bytes": 2_048}, "admin", "free_bytes=2.0 KiB"),
    ],
)
def test_the_name_of_a_field_says_its_unit(
    name: str, value: object, shown_name: str, shown: str
) -> None:
    assert (heading(name), describe_field(name, value)) == (shown_name, shown)
