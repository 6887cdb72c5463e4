"""Which segments cleaning chooses."""

from bookie.cleaning import mean_run_bytes, plan_cleaning, spans
from bookie.config import StorageConfig
from bookie.records import FooterRun
from bookie.segments import Segment, parse_name, segment_name
from metadata.ids import EntryId, LedgerId

CONFIG = StorageConfig(
    segment_bytes_max=1000, clean_live_share_max=0.5, clean_mean_run_bytes_min=100
)


def segment(number: int, live: int, **fields: int | bool | None) -> Segment:
    made = Segment(number, is_cleaned=bool(fields.get("is_cleaned")), size=1000, live_bytes=live)
    mean = fields.get("mean", 500)
    made.mean_run_bytes = None if mean is None else int(mean)
    made.is_damaged = bool(fields.get("is_damaged"))
    return made


def run(ledger_id: int, first: int, count: int, offset: int, size: int) -> FooterRun:
    return FooterRun(LedgerId(ledger_id), EntryId(first), count, offset, size)


def test_the_plan() -> None:
    segments = [
        segment(1, 0),
        segment(2, 0, is_damaged=True),
        segment(3, 400),
        segment(4, 100),
        segment(5, 900),
        segment(6, 900, mean=50),
        segment(7, 900, mean=50, is_cleaned=True),
        segment(8, 900, mean=None),
        segment(9, 0),
    ]
    plan = plan_cleaning(segments, 9, CONFIG, is_emergency=False)
    assert plan.dead == (1,)
    assert plan.rewrite == (4, 3, 6)
    emergency = plan_cleaning(segments, 10, CONFIG, is_emergency=True)
    assert (emergency.dead, emergency.rewrite) == ((1, 9), ())


def test_one_pass_rewrites_about_one_segment() -> None:
    segments = [segment(number, 400) for number in range(1, 9)]
    assert plan_cleaning(segments, 99, CONFIG, is_emergency=False).rewrite == (1, 2, 3)


def test_runs_are_joined_only_where_entries_and_bytes_touch() -> None:
    runs = [
        run(1, 0, 2, 0, 50),
        run(1, 2, 1, 50, 50),
        run(2, 0, 1, 100, 50),
        run(1, 3, 1, 150, 50),
        run(1, 5, 1, 200, 100),
    ]
    assert mean_run_bytes(runs) == 300 // 4
    assert mean_run_bytes([]) == 0
    assert spans(runs) == [(1, 0, 5), (2, 0, 0)]


def test_names() -> None:
    assert segment_name(255, is_cleaned=False) == "log/000000ff.log"
    assert parse_name("000000ff.clean") == (255, True)
    assert parse_name("000000ff.log") == (255, False)
    for name in ("", "0000000f", "lock", "000000FF.log", "000000ff.logs", "+00000ff.log"):
        assert parse_name(name) is None
