"""Which segments cleaning chooses."""

import asyncio
import random
import struct

import pytest

from bookie.config import StorageConfig
from bookie.log import records
from bookie.log.replay import SLICE_RUNS, ListedRuns
from bookie.log.segments import Segment, parse_name, segment_name
from bookie.storage import cleaning
from bookie.storage.cleaning import CleaningRoom, pace_of, plan_cleaning

CONFIG = StorageConfig(
    segment_bytes_max=1000, clean_live_share_max=0.5, clean_mean_run_bytes_min=100
)


AMPLE = CleaningRoom(10**9, is_full=False, bytes_per_s=1.0)
FULL = CleaningRoom(10**9, is_full=True, bytes_per_s=1.0)


def segment(number: int, live: int, **fields: int | bool | None) -> Segment:
    made = Segment(number, is_cleaned=bool(fields.get("is_cleaned")), size=1000, live_bytes=live)
    mean = fields.get("mean", 500)
    made.mean_run_bytes = None if mean is None else int(mean)
    made.is_damaged = bool(fields.get("is_damaged"))
    return made


def run(ledger_id: int, first: int, count: int, offset: int, size: int) -> bytes:
    return struct.pack("<IQQII", count, ledger_id, first, offset, size)


def test_plan_of_a_pass() -> None:
    segments = [
        segment(1, 0),
        segment(2, 0, is_damaged=True),
        segment(0, 100, is_damaged=True),
        segment(3, 400),
        segment(4, 100),
        segment(5, 900),
        segment(6, 900, mean=50),
        segment(7, 900, mean=50, is_cleaned=True),
        segment(8, 900, mean=None),
        segment(9, 0),
    ]
    plan = plan_cleaning(segments, 9, CONFIG, AMPLE)
    assert plan.dead == (1, 2)
    assert plan.rewrite == (4, 3)  # the scattered one would make more than one segment
    assert plan.backlog_bytes == 2000 + sum(1000 - live - 256 for live in (400, 100))


def test_a_scattered_segment_is_rewritten_once() -> None:
    segments = [segment(6, 900, mean=50), segment(7, 900, mean=50, is_cleaned=True)]
    assert plan_cleaning(segments, 9, CONFIG, AMPLE).rewrite == (6,)


def test_one_pass_rewrites_at_most_one_segment() -> None:
    segments = [segment(number, 400) for number in range(1, 9)]
    assert plan_cleaning(segments, 99, CONFIG, AMPLE).rewrite == (1, 2)
    assert plan_cleaning([segment(1, 5000)], 99, CONFIG, FULL).rewrite == ()


def test_full_disk_rewrites_every_segment_with_enough_garbage_cheapest_first() -> None:
    large = segment(3, 600)
    large.size = 4000
    segments = [segment(1, 700), segment(2, 735), large, segment(4, 0), segment(5, 650)]
    assert plan_cleaning(segments, 99, CONFIG, AMPLE).rewrite == (3,)
    plan = plan_cleaning(segments, 99, CONFIG, FULL)
    assert (plan.dead, plan.rewrite) == ((4,), (3,))
    segments.remove(large)
    assert plan_cleaning(segments, 99, CONFIG, FULL).rewrite == (5,)
    assert plan_cleaning([segment(2, 735)], 99, CONFIG, FULL).rewrite == ()  # frees less than 1/64


def test_only_what_fits_is_rewritten() -> None:
    segments = [segment(1, 100), segment(2, 300)]
    for free_bytes, rewrite in ((355, ()), (356, (1,)), (911, (1,)), (912, (1, 2))):
        room = CleaningRoom(free_bytes, is_full=True, bytes_per_s=1.0)
        assert plan_cleaning(segments, 99, CONFIG, room).rewrite == rewrite


def test_the_room_counts_the_entries_of_the_footer() -> None:
    one = segment(1, 500)
    one.record_count = 10
    room = CleaningRoom(500 + 256 + 139, is_full=True, bytes_per_s=1.0)
    assert plan_cleaning([one], 99, CONFIG, room).rewrite == ()


def test_the_pace_follows_the_backlog_and_the_disk() -> None:
    config = StorageConfig(
        segment_bytes_max=100, clean_bytes_per_s_min=10, clean_bytes_per_s_max=110
    )
    assert pace_of(0, 0.5, config, is_full=False) == 10
    assert pace_of(400, 0.5, config, is_full=False) == 60
    assert pace_of(10**6, 0.5, config, is_full=False) == 110
    assert 59 < pace_of(0, config.disk_high_mark - 0.05, config, is_full=False) < 61
    assert pace_of(0, 0.5, config, is_full=True) == 110


def test_runs_are_joined_only_where_entries_and_bytes_touch() -> None:
    runs = [
        run(1, 0, 2, 0, 50),
        run(1, 2, 1, 50, 50),
        run(2, 0, 1, 100, 50),
        run(1, 3, 1, 150, 50),
        run(1, 5, 1, 200, 100),
    ]
    listed = ListedRuns(b"".join(runs))
    assert asyncio.run(listed.mean_bytes()) == 300 // 4
    assert asyncio.run(ListedRuns(b"").mean_bytes()) == 0
    assert asyncio.run(listed.spans()) == {1: (0, 5), 2: (0, 0)}


def test_runs_are_listed_in_slices_with_pauses() -> None:
    count = 2 * SLICE_RUNS + 5
    listed = ListedRuns(b"".join(run(1, number, 1, number * 50, 50) for number in range(count)))
    assert len(listed) == count

    async def firsts(*, newest_first: bool) -> list[int]:
        found: list[int] = []
        pauses: list[int] = []
        async for runs in listed.slices(newest_first=newest_first):
            asyncio.get_running_loop().call_soon(pauses.append, len(found))
            found += [footer_run.first_entry_id for footer_run in runs]
        assert pauses == [
            0,
            *([SLICE_RUNS, 2 * SLICE_RUNS] if not newest_first else [5, SLICE_RUNS + 5]),
        ]
        return found

    assert asyncio.run(firsts(newest_first=False)) == list(range(count))
    assert asyncio.run(firsts(newest_first=True)) == list(reversed(range(count)))
    assert asyncio.run(listed.mean_bytes()) == 50 * count
    assert asyncio.run(listed.spans()) == {1: (0, count - 1)}


def test_segment_names() -> None:
    assert segment_name(255, is_cleaned=False) == "log/000000ff.log"
    assert parse_name("000000ff.clean") == (255, True)
    assert parse_name("000000ff.log") == (255, False)
    for name in ("", "0000000f", "lock", "000000FF.log", "000000ff.logs", "+00000ff.log"):
        assert parse_name(name) is None


@pytest.mark.parametrize("seed", range(20))
def test_pieces_cover_every_run_once_within_their_limits(seed: int) -> None:
    rng = random.Random(seed)
    largest = rng.choice((100, 5_000, 3_000_000))
    runs: list[tuple[int, int, int, int]] = []
    for number in range(rng.choice((1, 3_000))):
        place = records.lsn_of(rng.randint(1, 3), rng.randrange(10_000_000))
        runs.append((number, number, place, rng.randint(1, largest)))
    groups = list(cleaning.group_runs(runs))
    assert [run for group in groups for run in group] == runs
    for group in groups:
        total = sum(run[3] for run in group)
        assert total <= cleaning.GROUP_BYTES_MAX or len(group) == 1
        pieces = cleaning.pieces_of(group)
        assert sorted(run for piece in pieces for run in piece.runs) == sorted(group)
        assert all(len(piece.runs) <= cleaning.PIECE_RUNS_MAX for piece in pieces)
        for location, size, inside in pieces:
            assert size <= max(cleaning.PIECE_BYTES_MAX, inside[0][3])
            assert min(run[2] for run in inside) == location
            assert max(run[2] + run[3] for run in inside) == location + size
            assert len({records.segment_of(run[2]) for run in inside}) == 1
            unread = size - sum(run[3] for run in inside)
            assert unread <= cleaning.GAP_BYTES_MAX * (len(inside) - 1)


def test_adjacent_runs_are_read_together() -> None:
    runs = [(n, n, records.lsn_of(1, 100 * n), 100) for n in (3, 1, 2, 0)]
    assert [piece.size for piece in cleaning.pieces_of(runs)] == [400]
    far = (9, 9, records.lsn_of(1, 401 + cleaning.GAP_BYTES_MAX), 100)
    assert [piece.size for piece in cleaning.pieces_of([*runs, far])] == [400, 100]
