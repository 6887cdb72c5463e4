"""Settings of repair, changed by operators."""

from dataclasses import asdict

import pytest

from metadata.errors import InvalidRepairSettingError
from metadata.repair.settings import DEFAULTS
from quire.cli.repair import repair_manage
from quire.cli.repair.verbs import parser
from quire.errors import UsageError, exit_code
from tests.support.quire.memory_cluster import MemoryCluster

NOW_MS = 1_700_000_000_000


async def test_the_throttle(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    _, row = await memory_cluster.run(parser(), "settings", "-o", "json")
    assert row == asdict(DEFAULTS)
    _, row = await memory_cluster.run(parser(), "throttle", "80MB/s", "-o", "json")
    assert row == asdict(DEFAULTS) | {"bytes_per_s": 80_000_000}
    limits = ("--per-bookie", "1MiB/s", "--per-source", "unlimited")
    _, row = await memory_cluster.run(parser(), "throttle", "2MiB/s", *limits, "-o", "json")
    assert row == asdict(DEFAULTS) | {
        "bytes_per_s": 2**21,
        "bookie_bytes_per_s": 2**20,
        "source_bytes_per_s": 0,
    }


async def test_a_pause_ends_by_itself(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_manage, "wall_clock_ms", lambda: NOW_MS)
    await memory_cluster.create()
    for words, minutes in ((("--for", "30m"), 30), ((), 60)):
        _, row = await memory_cluster.run(parser(), "pause", *words, "-o", "json")
        assert row["paused_until_ms"] == NOW_MS + minutes * 60_000
    _, row = await memory_cluster.run(parser(), "resume", "-o", "json")
    assert row["paused_until_ms"] == 0


async def test_any_setting_is_changed(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    words = ("settings", "lost_after_s=1800", "fragments_per_bookie=4", "-o", "json")
    _, row = await memory_cluster.run(parser(), *words)
    assert row == asdict(DEFAULTS) | {"lost_after_s": 1800, "fragments_per_bookie": 4}
    with pytest.raises(InvalidRepairSettingError) as raised:
        await memory_cluster.run(parser(), "settings", "speed=9", "-o", "json")
    assert exit_code(raised.value) == 2
    for word in ("lost_after_s", "lost_after_s=", "lost_after_s=-1", "lost_after_s=1h"):
        with pytest.raises(UsageError, match="write NAME=VALUE"):
            await memory_cluster.run(parser(), "settings", word, "-o", "json")


def test_a_wrong_rate_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["throttle", "fast"])
    assert ended.value.code == 2
    assert "'fast' is not a rate" in capsys.readouterr().err
