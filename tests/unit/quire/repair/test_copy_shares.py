"""Shares of the copying that one worker may do."""

import asyncio
from dataclasses import replace

import pytest

from metadata.ids import BookieId
from metadata.repair.settings import DEFAULTS
from quire.repair.pacing import SLOT_WAIT_S_MAX, UNLIMITED_BYTES_PER_S, CopyShares
from tests.simulation.loop import run_simulation
from tests.support.sample_ledgers import bookies

A, B, C, D = bookies("abcd")
SETTINGS = replace(
    DEFAULTS,
    bytes_per_s=1_000,
    bookie_bytes_per_s=400,
    source_bytes_per_s=0,
    fragments_per_bookie=2,
)


def test_a_worker_has_its_part_of_both_ceilings() -> None:
    shares = CopyShares()
    shares.follow(SETTINGS, 2)
    with shares.copying_to(A) as to_a, shares.copying_to(B) as to_b:
        assert to_a.take(200, 0.0, C) == 0.0
        assert to_a.take(200, 0.0, C) == 1.0, "200 bytes/s to one bookie"
        assert to_b.take(100, 0.0, C) == 0.8, "500 bytes/s in all"


def test_a_copy_waits_for_the_slowest_of_its_limits() -> None:
    shares = CopyShares()
    limits = replace(SETTINGS, bytes_per_s=100, bookie_bytes_per_s=200, source_bytes_per_s=400)
    shares.follow(limits, 1)
    with shares.copying_to(A) as to_a:
        assert to_a.left_s(0.0) == 0.0
        to_a.take(800, 0.0, C)
        assert to_a.left_s(1.0) == 7.0, "the cluster's"
        shares.follow(replace(limits, bytes_per_s=0), 1)
        assert to_a.left_s(1.0) == 3.0, "the target's"
        shares.follow(replace(limits, bytes_per_s=0, bookie_bytes_per_s=0), 1)
        assert to_a.left_s(1.0) == 1.0, "the source's"
        shares.follow(replace(SETTINGS, bytes_per_s=0, bookie_bytes_per_s=0), 1)
        assert to_a.left_s(1.0) == 0.0


def test_the_copies_of_one_source_share_its_ceiling() -> None:
    shares = CopyShares()
    shares.follow(replace(SETTINGS, bytes_per_s=0, source_bytes_per_s=200), 2)
    with shares.copying_to(A) as to_a:
        with shares.copying_to(B) as to_b:
            assert to_a.take(50, 0.0, C) == 0.0
            assert to_b.take(50, 0.0, C) == 0.5, "100 bytes/s from one source"
            assert to_b.take(50, 0.0, D) == 0.25, "another source; 200 bytes/s to the target"
            assert to_a.take(50, 0.0, None) == 0.25, "no source is known"
        assert to_a.take(100, 10.0, C) == 0.0
        shares.follow(replace(SETTINGS, bytes_per_s=0, source_bytes_per_s=10), 1)
        assert to_a.take(10, 10.0, C) == 1.0, "what was admitted before stays admitted"
        assert to_a.take(10, 10.0, C) == 2.0
        shares.follow(SETTINGS, 1)
        assert to_a.take(10, 20.0, C) == 0.0


def test_copies_that_follow_each_other_share_the_ceilings() -> None:
    shares = CopyShares()
    shares.follow(replace(SETTINGS, bytes_per_s=0, source_bytes_per_s=100), 1)
    for began in (0.0, 2.0, 4.0):
        with shares.copying_to(A) as to_a:
            assert to_a.take(200, 0.0, C) == began, "100 bytes/s from one source"
    with shares.copying_to(A) as to_a:
        assert to_a.take(200, 0.0, D) == 1.5, "400 bytes/s to one bookie"
        assert to_a.take(1, 6.0, C) == 0.0, "all of the first copies has passed"


SLOW_US = (SETTINGS.append_p99_ms_max + 1) * 1000


@pytest.mark.parametrize("slow", [A, C], ids=["target", "source"])
def test_slow_appends_at_either_end_slow_a_copy(slow: BookieId) -> None:
    shares = CopyShares()
    shares.follow(replace(SETTINGS, bytes_per_s=0, source_bytes_per_s=400), 2)
    with shares.copying_to(A) as copy:
        assert copy.take(100, 0.0, C) == 0.0
        shares.note_p99(slow, SLOW_US)
        assert copy.take(100, 10.0, C) == 0.0
        assert copy.take(100, 10.0, C) == 1.0, "half of 200 bytes/s"
        shares.note_p99(slow, SLOW_US - 1000)
        assert copy.take(100, 20.0, C) == 0.0
        assert copy.take(100, 20.0, C) == 0.5
    shares.note_p99(slow, SLOW_US)
    with shares.copying_to(B) as other:
        assert other.take(100, 30.0, D) == 0.0
        assert other.take(100, 30.0, D) == 0.5, "neither of its ends is slow"


def test_slow_appends_without_a_ceiling_or_a_mark() -> None:
    shares = CopyShares()
    unlimited = replace(SETTINGS, bytes_per_s=0, bookie_bytes_per_s=0)
    shares.follow(unlimited, 2)
    shares.note_p99(A, SLOW_US)
    with shares.copying_to(A) as copy:
        assert copy.take(UNLIMITED_BYTES_PER_S, 0.0, C) == 0.0
        assert copy.take(1, 0.0, C) == 4.0, "half of a worker's share"
        shares.follow(replace(unlimited, append_p99_ms_max=0), 2)
        shares.note_p99(A, SLOW_US)
        assert copy.take(1, 10.0, C) == 0.0
        assert copy.take(1, 10.0, C) == 0.0


def test_a_change_of_the_settings_is_live() -> None:
    shares = CopyShares()
    shares.follow(SETTINGS, 1)
    with shares.copying_to(A) as to_a:
        shares.follow(replace(SETTINGS, bytes_per_s=0, bookie_bytes_per_s=0), 1)
        assert [to_a.take(10**9, 0.0, C) for _ in range(3)] == [0.0] * 3


def test_a_target_gets_a_number_of_copies_at_once() -> None:
    shares = CopyShares()
    shares.follow(SETTINGS, 1)
    with shares.copying_to(A):
        assert not shares.is_busy(A)
        with shares.copying_to(A):
            assert shares.is_busy(A)
            assert not shares.is_busy(B)
    assert not shares.is_busy(A)


def test_a_copy_waits_for_the_end_of_another_one() -> None:
    async def story() -> None:
        shares = CopyShares()
        shares.follow(SETTINGS, 1)
        loop = asyncio.get_running_loop()
        with shares.copying_to(A), shares.copying_to(A):
            begin = loop.time()
            assert not await shares.wait_changed()
            assert loop.time() - begin == SLOT_WAIT_S_MAX
            waiting = loop.create_task(shares.wait_changed())
            await asyncio.sleep(1.0)
            assert not waiting.done()
        assert await waiting
        assert not shares.is_busy(A)

    run_simulation(story, 1)
