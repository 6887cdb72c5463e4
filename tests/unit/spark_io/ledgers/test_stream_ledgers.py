"""A stream reads on in its own chain and its own ledgers, not in others of the same name."""

import json
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from spark_io.errors import (
    ChainTrimmedError,
    OffsetError,
    OptionError,
    RecreatedError,
)
from spark_io.ledgers import following
from spark_io.ledgers.following import check_stream
from spark_io.ledgers.options import Bounds, ReadOptions
from spark_io.ledgers.selecting import find_ledgers, require_same_chain
from spark_io.offsets import IDS_KEY, MicroBatchLimits, Offset
from spark_io.progress import entries_behind
from tests.support.spark_io.one_cluster import (
    ADDRESS,
    ALL,
    FIRST,
    SECOND,
    Followed,
    OneCluster,
    counts_of,
    lenient,
    read_all,
    stream,
)

if TYPE_CHECKING:
    from ledger_client.sync import LedgerClient


def test_a_checkpoint_of_a_chain_continues_in_it() -> None:
    cluster = OneCluster(counts=[10])
    source = stream(cluster)
    end, ranges = read_all(source, source.earliest())
    assert counts_of(ranges) == [(100, 0, 9)]
    ids = {IDS_KEY: {"events": FIRST.hex()}}
    assert end == {"link": 1, "ledger": 0, "entry": 0, "entries": 10} | ids
    cluster.counts.append(5)
    again = stream(cluster)
    assert counts_of(read_all(again, end)[1]) == [(101, 0, 4)]
    assert again.chain_token == FIRST


def test_a_stream_of_a_chain_reports_its_backlog_across_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def behind(source: Followed, end: Offset) -> int | None:
        newest = source.reported()
        said = {"endOffset": json.dumps(end), "latestOffset": json.dumps(newest)}
        return entries_behind({"sources": [said]})

    cluster = OneCluster(counts=[10, 20, 5])
    source = stream(cluster)
    twelve = MicroBatchLimits(entries=12)
    end = source.advance(source.earliest(), source.latest(), twelve)
    assert behind(source, end) == 23
    cluster.counts += [7, 0]
    again = stream(cluster)
    assert again.reported() == again.latest(), "nothing is read for a report alone"
    end = again.advance(end, again.latest(), twelve)
    assert behind(again, end) == 18
    end = again.advance(end, again.latest(), ALL)
    assert behind(again, end) == 0
    assert again.advance(end, again.latest(), ALL) == end, "no micro-batch only counts"
    cluster.counts += [1, 2, 3]
    monkeypatch.setattr(following, "LINKS_PER_BATCH_MAX", 2)
    assert behind(again, end) is None


@pytest.mark.parametrize("counts", [(700,), (3,), (), (4, 5, 6)])
def test_a_checkpoint_that_outlives_its_chain_fails(counts: tuple[int, ...]) -> None:
    cluster = OneCluster(counts=[10])
    before = stream(cluster)
    start, end = before.earliest(), before.latest()
    cluster.create_chain_again(*counts)
    source = stream(cluster)
    with pytest.raises(RecreatedError, match="chain 'events' was deleted and created again"):
        source.advance(end, source.latest(), ALL)
    with pytest.raises(RecreatedError):
        source.ranges(start, end)
    with pytest.raises(RecreatedError):
        source.ranges(source.earliest(), end)
    with pytest.raises(RecreatedError):
        source.ranges(end, source.latest())


def test_a_chain_created_again_is_read_from_its_start_if_data_loss_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = OneCluster(counts=[10, 10, 10])
    before = stream(cluster)
    start, end = before.earliest(), before.latest()
    cluster.create_chain_again(7)
    source = lenient(cluster)
    now, ranges = read_all(source, end)
    assert counts_of(ranges) == [(100, 0, 6)]
    assert "chain 'events' was deleted and created again" in caplog.text
    assert now == source.reported()
    assert source.ranges(end, now) == ranges, "a micro-batch is the same at every read"
    assert read_all(source, now) == (now, [])
    assert source.ranges(start, end) == [], "a planned micro-batch of the old chain is lost"
    assert source.ranges(now, end) == []


def test_an_empty_chain_created_again_gets_its_own_offset_if_data_loss_is_allowed() -> None:
    cluster = OneCluster(counts=[10])
    before = stream(cluster).latest()
    cluster.create_chain_again()
    source = lenient(cluster)
    now, ranges = read_all(source, before)
    assert (now, ranges) == (source.earliest(), [])
    cluster.counts.append(4)
    assert counts_of(read_all(source, now)[1]) == [(100, 0, 3)]


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}])
def test_a_running_query_ends_when_its_chain_is_created_again(options: dict[str, str]) -> None:
    cluster = OneCluster(counts=[10])
    source = stream(cluster, **options)
    start = source.earliest()
    cluster.create_chain_again(700)
    with pytest.raises(RecreatedError, match="since the query began"):
        source.latest()
    with pytest.raises(RecreatedError):
        source.ranges(start, {**start, "link": 1})


def test_links_that_may_be_of_another_chain_are_not_used() -> None:
    cluster = OneCluster(counts=[10], is_recreated_by_links=True)
    source = stream(cluster)
    with pytest.raises(RecreatedError):
        source.latest()
    cluster = OneCluster(counts=[10], is_recreated_by_links=True)
    selection = ReadOptions.of({**ADDRESS, "chain": "events"}).selection
    with pytest.raises(RecreatedError):
        find_ledgers(cast("LedgerClient", cluster), selection, b"")


def test_the_chain_of_a_batch_query_is_known_to_its_tasks() -> None:
    cluster = cast("LedgerClient", OneCluster(counts=[10]))
    selection = ReadOptions.of({**ADDRESS, "chain": "events"}).selection
    found = find_ledgers(cluster, selection, b"")
    assert found.chain_token == FIRST
    assert [entry_range.ledger_id for entry_range in found] == [100]
    require_same_chain(cluster, "events", FIRST, "planning")
    with pytest.raises(RecreatedError, match="since planning"):
        require_same_chain(cluster, "events", SECOND, "planning")


def test_a_batch_query_that_begins_at_trimmed_links_fails_or_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ids(bounds: Bounds, *, strict: bool) -> list[int]:
        selected = find_ledgers(cluster, selection, b"", fail_on_data_loss=strict, bounds=bounds)
        return [ledger.ledger_id for ledger in selected]

    cluster = cast("LedgerClient", OneCluster(counts=[4, 5, 6], first_index=2))
    selection = ReadOptions.of({**ADDRESS, "chain": "events"}).selection
    with pytest.raises(ChainTrimmedError, match="begins at link 2 now: links 1 to 1 were trimmed"):
        ids(Bounds(first_link=1), strict=True)
    assert ids(Bounds(first_link=2), strict=True) == ids(Bounds(), strict=True) == [102]
    assert caplog.text == ""
    assert ids(Bounds(first_link=1), strict=False) == [102]
    assert "links 1 to 1 were trimmed or replaced; they are left out" in caplog.text


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"startingLink": "0", "endingLink": "2"}, "links 0 to 1"),
        ({"startingLink": "0"}, "links 0 to 1"),
        ({"startingLink": "1", "endingLink": "9"}, "links 1 to 1"),
        ({"endingLink": "1"}, "links 0 to 0"),
        ({"startingTime": "1001"}, "links below 2 that may be within"),
        ({"startingTime": "5", "endingTime": "9"}, "links below 2 that may be within"),
        ({"endingTime": "1002"}, "links below 2 that may be within"),
        ({"startingLink": "1", "endingLink": "1"}, ""),
        ({"endingLink": "0"}, ""),
        ({"endingLink": "9"}, ""),
        ({"startingTime": "1002"}, ""),
        ({"endingTime": "1003"}, ""),
        ({"startingLink": "2", "startingTime": "5"}, ""),
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_batch_query_that_names_trimmed_links_fails(
    bounds: dict[str, str], said: str, *, is_empty: bool
) -> None:
    """It would return less than it names, silently."""
    cluster = OneCluster(counts=[4, 5] if is_empty else [4, 5, 6], first_index=2)
    options = ReadOptions.of({**ADDRESS, "chain": "events", **bounds})
    is_by_time = any("Time" in name for name in bounds) and "startingLink" not in bounds

    def find() -> None:
        client = cast("LedgerClient", cluster)
        find_ledgers(client, options.selection, b"", bounds=options.bounds)

    if said or (is_empty and is_by_time):
        with pytest.raises(ChainTrimmedError, match=f"begins at link 2 now: {said}.* trimmed"):
            find()
    else:
        find()


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}])
def test_a_checkpoint_without_the_identity_of_its_chain_is_refused(
    options: dict[str, str],
) -> None:
    cluster = OneCluster(counts=[10])
    end = {name: each for name, each in stream(cluster).latest().items() if name != IDS_KEY}
    with pytest.raises(OffsetError, match="identity of chain 'events'"):
        read_all(stream(cluster, **options), end)


def test_a_checkpoint_of_a_chain_of_another_name_is_refused() -> None:
    cluster = OneCluster(counts=[10])
    other = {**stream(cluster).latest(), IDS_KEY: {"orders": FIRST.hex()}}
    source = lenient(cluster)
    with pytest.raises(OffsetError, match="the checkpoint is of chain orders"):
        read_all(source, other)


def test_starting_offsets_of_a_chain() -> None:
    source = stream(OneCluster(counts=[10]))
    plain = '{"link": 0, "ledger": 0, "entry": 4}'
    start = source.start(plain)
    assert start[IDS_KEY] == {"events": FIRST.hex()}
    assert counts_of(read_all(source, start)[1]) == [(100, 4, 9)]
    with_ids = plain[:-1] + f', "$ids": {{"events": "{FIRST.hex()}"}}}}'
    assert source.start(with_ids) == start
    with pytest.raises(OptionError, match="names another chain 'events'"):
        source.start(with_ids.replace(FIRST.hex(), SECOND.hex()))
    for wrong in ("[1]", "now", '{"link": 1}'):
        with pytest.raises(OptionError, match="is neither earliest nor latest nor an offset"):
            source.start(wrong)


def test_links_trimmed_from_a_chain_created_again() -> None:
    cluster = OneCluster(counts=[10])
    before = stream(cluster).latest()
    cluster.create_chain_again(1, 2, 3)
    cluster.first_index = 2
    source = lenient(cluster)
    assert counts_of(read_all(source, before)[1]) == [(102, 0, 2)]
    strict = stream(cluster)
    with pytest.raises(ChainTrimmedError):
        read_all(strict, {**strict.earliest(), "link": 0})


def test_a_ledger_with_the_id_of_another_one() -> None:
    cluster = OneCluster(ledgers={7: (FIRST, 10), 8: (FIRST, 5)})
    before = stream(cluster, ledgers="7,8")
    start, end = before.earliest(), before.latest()
    assert end == {"7": 10, "8": 5, IDS_KEY: {"7": FIRST.hex(), "8": FIRST.hex()}}
    assert [range_.creation_token for range_ in before.ranges(start, end)] == [FIRST, FIRST]
    cluster.ledgers[8] = (SECOND, 9)
    strict = stream(cluster, ledgers="7,8")
    with pytest.raises(RecreatedError, match="ledger '8' was deleted and created again"):
        read_all(strict, end)
    with pytest.raises(RecreatedError):
        strict.ranges(strict.earliest(), end)
    source = lenient(cluster, ledgers="7,8")
    now, ranges = read_all(source, end)
    assert counts_of(ranges) == [(8, 0, 8)]
    assert ranges[0].creation_token == SECOND
    assert read_all(source, now) == (now, [])
    assert counts_of(source.ranges(start, end)) == [(7, 0, 9)]


def test_a_checkpoint_without_the_identity_of_a_ledger_is_refused() -> None:
    cluster = OneCluster(ledgers={7: (FIRST, 10)})
    with pytest.raises(OffsetError, match="ledger '7'"):
        read_all(stream(cluster, ledgers="7"), {"7": 4})


def test_a_ledger_that_the_checkpoint_does_not_name_is_new() -> None:
    cluster = OneCluster(ledgers={7: (FIRST, 10), 8: (FIRST, 5)})
    end = stream(cluster, ledgers="7").latest()
    assert counts_of(read_all(stream(cluster, ledgers="7,8"), end)[1]) == [(8, 0, 4)]


def test_a_ledger_that_is_no_longer_named_fails_a_query_or_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = OneCluster(ledgers={7: (FIRST, 10), 8: (FIRST, 5)})
    before = stream(cluster, ledgers="7,8")
    start, end = before.earliest(), before.latest()
    with pytest.raises(OffsetError, match=r"ledgers \[8\], which the options do not name"):
        stream(cluster, ledgers="7").ranges(start, end)
    assert counts_of(lenient(cluster, ledgers="7").ranges(start, end)) == [(7, 0, 9)]
    assert "ledger 8: left out entries 0 to 4, 5 in all" in caplog.text


def test_starting_offsets_of_ledgers() -> None:
    source = stream(OneCluster(ledgers={7: (FIRST, 10), 8: (FIRST, 5)}), ledgers="7,8")
    start = source.start('{"7": 4}')
    assert start == {"7": 4, "8": 0, IDS_KEY: {"7": FIRST.hex(), "8": FIRST.hex()}}
    with pytest.raises(OptionError, match="names another ledger '7'"):
        source.start(f'{{"7": 4, "$ids": {{"7": "{SECOND.hex()}"}}}}')


@pytest.mark.parametrize(
    ("option", "value"),
    [("match", "app=blue"), ("startingEntry", "4"), ("endingOffsets", '{"7": 9}')],
)
def test_options_of_batch_queries_are_refused_before_a_stream_begins(
    option: str, value: str
) -> None:
    named = {} if option == "match" else {"ledger": "7"}
    stream_reader = pytest.importorskip("spark_io.ledgers.readers").LedgerStreamReader
    with pytest.raises(OptionError, match="a stream"):
        stream_reader(ReadOptions.of({**ADDRESS, **named, option: value}))


def test_a_stream_recovers_no_ledgers() -> None:
    cluster = OneCluster(ledgers={7: (FIRST, 5)})
    with pytest.raises(OptionError, match="'recoverOpenLedgers': a stream recovers nothing"):
        check_stream(ReadOptions.of({**ADDRESS, "ledger": "7", "recoverOpenLedgers": "true"}))
    assert stream(cluster, ledgers="7", recoverOpenLedgers="false").latest()["7"] == 5
