"""Limits of the plan of a pass of cleaning, each at its exact value."""

import pytest

from bookie.config import StorageConfig
from bookie.log.records import FOOTER_RUN_BYTES
from bookie.log.segments import Segment
from bookie.storage.cleaning import (
    FULL_RATE_BACKLOG_SEGMENTS,
    FULL_RATE_DISK_SHARE,
    SEGMENT_OVERHEAD_BYTES,
    CleaningRoom,
    garbage_bytes,
    pace_of,
    plan_cleaning,
    rewrite_bytes,
)

CONFIG = StorageConfig(
    segment_bytes_max=1024, clean_live_share_max=0.5, clean_mean_run_bytes_min=100
)
AMPLE = CleaningRoom(10**9, is_full=False, bytes_per_s=1.0)
FULL = CleaningRoom(10**9, is_full=True, bytes_per_s=1.0)


def segment(number: int, live: int, size: int = 1024, **fields: int | None) -> Segment:
    made = Segment(number, is_cleaned=bool(fields.get("cleaned")), size=size, live_bytes=live)
    made.mean_run_bytes = fields.get("mean")
    made.record_count = fields.get("records")
    made.is_kept = bool(fields.get("kept"))
    return made


def rewritten(*segments: Segment, room: CleaningRoom = AMPLE) -> tuple[int, ...]:
    return plan_cleaning(segments, 99, CONFIG, room).rewrite


def test_what_may_be_cleaned() -> None:
    plan = plan_cleaning(
        [segment(1, 0), segment(2, 0, kept=1), segment(3, -5), segment(4, 1), segment(5, 0)],
        5,
        CONFIG,
        AMPLE,
    )
    assert (plan.dead, plan.rewrite) == ((1, 3), (4,))


@pytest.mark.parametrize(("live", "is_due"), [(511, True), (512, True), (513, False)])
def test_a_segment_is_due_up_to_the_live_share(live: int, is_due: bool) -> None:
    assert bool(rewritten(segment(1, live))) is is_due


@pytest.mark.parametrize(
    ("mean", "cleaned", "is_due"),
    [(99, 0, True), (100, 0, False), (None, 0, False), (99, 1, False)],
)
def test_a_scattered_segment_is_due_below_the_mean_size(
    mean: int | None, cleaned: int, is_due: bool
) -> None:
    assert bool(rewritten(segment(1, 1000, mean=mean, cleaned=cleaned))) is is_due


@pytest.mark.parametrize(("garbage", "is_due"), [(15, False), (16, True), (17, True)])
def test_on_a_full_disk_a_64th_of_garbage_is_enough(garbage: int, is_due: bool) -> None:
    live = 1024 - SEGMENT_OVERHEAD_BYTES - garbage
    assert bool(rewritten(segment(1, live), room=FULL)) is is_due


def test_the_lowest_live_share_comes_first_and_on_a_full_disk_the_fewest_live_bytes() -> None:
    segments = [segment(1, 300, 1000), segment(2, 400, 4000), segment(3, 350, 1000)]
    assert rewritten(*segments) == (2, 1)
    assert rewritten(*segments, room=FULL) == (1, 3)


@pytest.mark.parametrize(("live", "expected"), [(512, (1, 2)), (513, (1,))])
def test_rewrites_fill_one_segment(live: int, expected: tuple[int, ...]) -> None:
    small, large = segment(1, 512, 4096), segment(2, live, 4096)
    assert rewritten(small, large) == expected
    assert rewritten(segment(1, 2000, 4096)) == (1,), "the first one may be larger"


def test_nothing_behind_one_that_does_not_fit_is_rewritten() -> None:
    segments = [segment(1, 10, 1000), segment(2, 400, 4000), segment(3, 150, 1000)]
    room = CleaningRoom(700, is_full=False, bytes_per_s=1.0)
    assert rewritten(*segments, room=room) == (1,)
    over = [segment(1, 100, 4096), segment(2, 1000, 8192), segment(3, 700, 4096)]
    assert rewritten(*over) == (1,)


def test_the_footer_counts_for_the_live_share_of_its_records() -> None:
    made = segment(1, 500, 1000, records=10)
    footer = 5 * FOOTER_RUN_BYTES
    assert rewrite_bytes(made) == 500 + footer + SEGMENT_OVERHEAD_BYTES
    assert garbage_bytes(made) == 1000 - 500 - footer - SEGMENT_OVERHEAD_BYTES
    overcounted = segment(1, 3000, 1000, records=10)
    assert rewrite_bytes(overcounted) == 3000 + 10 * FOOTER_RUN_BYTES + SEGMENT_OVERHEAD_BYTES
    odd = segment(1, 333, 1000, records=3)
    assert rewrite_bytes(odd) == 333 + int(3 * FOOTER_RUN_BYTES * 0.333) + SEGMENT_OVERHEAD_BYTES
    assert rewrite_bytes(segment(1, 0, 0)) == SEGMENT_OVERHEAD_BYTES
    assert rewrite_bytes(segment(1, 1, 1, records=2)) == 1 + 2 * FOOTER_RUN_BYTES + 256


def test_a_backlog_is_never_negative() -> None:
    plan = plan_cleaning([segment(1, 10, 100)], 99, CONFIG, AMPLE)
    assert (plan.rewrite, plan.backlog_bytes) == ((1,), 0)


def test_the_pace_grows_with_the_backlog_and_towards_the_high_mark() -> None:
    slowest, fastest = CONFIG.clean_bytes_per_s_min, CONFIG.clean_bytes_per_s_max
    most = FULL_RATE_BACKLOG_SEGMENTS * CONFIG.segment_bytes_max
    far = CONFIG.disk_high_mark - 2 * FULL_RATE_DISK_SHARE

    def pace(backlog: float, used: float = far, *, is_full: bool = False) -> float:
        found = pace_of(int(backlog), used, CONFIG, is_full=is_full)
        return round((found - slowest) / (fastest - slowest), 6)

    assert [pace(each) for each in (0, most / 4, most, 2 * most)] == [0.0, 0.25, 1.0, 1.0]
    near = CONFIG.disk_high_mark - FULL_RATE_DISK_SHARE / 4
    assert [pace(0, near), pace(0, CONFIG.disk_high_mark), pace(0, 1.0)] == [0.75, 1.0, 1.0]
    assert pace(0, is_full=True) == 1.0
