"""A recorded end is reached, or the query fails: entries before it are never left out silently."""

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from spark_io.errors import DataLostError, ReadFailedError
from spark_io.ledgers import readers
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.selecting import known_ledger
from spark_io.offsets import Offset
from spark_io.ranges import EntryRange
from tests.support.spark_io.one_cluster import (
    ADDRESS,
    ALL,
    Followed,
    OneCluster,
    OneReader,
    counts_of,
    lenient,
    read_all,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_io.readers import RangePartition

NEWEST = 100
"""Id of the open ledger: the first of the chain, and the one that the option names."""
CHAIN: dict[str, str] = {}
NAMED = {"ledgers": str(NEWEST)}


def recorded(options: dict[str, str]) -> tuple[OneCluster, Offset, Offset]:
    """Return a cluster whose bookies know less, and a micro-batch that was recorded before."""
    cluster = OneCluster(counts=[0], lac=11)
    before = stream(cluster, **options)
    start = before.earliest()
    end = before.advance(start, before.latest(), ALL)
    assert counts_of(before.ranges(start, end)) == [(NEWEST, 0, 11)]
    cluster.lac = 7
    return cluster, start, end


@pytest.mark.parametrize("options", [CHAIN, NAMED])
def test_a_restart_waits_until_the_recorded_end_is_confirmed(options: dict[str, str]) -> None:
    cluster, start, end = recorded(options)
    cluster.later_lacs = [9, 11, 14]
    after = stream(cluster, **options)
    assert counts_of(after.ranges(start, end)) == [(NEWEST, 0, 11)]
    cluster.lac = 14
    assert counts_of(read_all(after, end)[1]) == [(NEWEST, 12, 14)]


@pytest.mark.parametrize("options", [CHAIN, NAMED])
@pytest.mark.parametrize("start_again", [stream, lenient])
def test_an_end_that_is_not_confirmed_in_time_is_an_error(
    start_again: "Callable[..., Followed]", options: dict[str, str]
) -> None:
    cluster, start, end = recorded(options)
    source = start_again(cluster, **options)
    with pytest.raises(ReadFailedError, match=r"entries 8 to 11: .* not confirmed before entry 12"):
        source.ranges(start, end)
    assert source.ranges(end, end) == [], "an empty micro-batch waits for nothing"
    assert source.advance(end, source.latest(), ALL) == end, "a position never goes back"


@pytest.mark.parametrize("options", [CHAIN, NAMED])
def test_a_closed_ledger_that_ends_before_the_recorded_end_lost_entries(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, start, end = recorded(options)
    cluster.later_end = 7
    with pytest.raises(DataLostError, match="entries 8 to 11: the ledger ends before entry 8"):
        stream(cluster, **options).ranges(start, end)
    assert counts_of(lenient(cluster, **options).ranges(start, end)) == [(NEWEST, 0, 7)]
    assert "left out entries 8 to 11, 4 in all" in caplog.text


def test_a_ledger_that_is_deleted_during_the_wait_is_left_out_if_that_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, start, end = recorded(CHAIN)
    cluster.is_deleted = True
    assert counts_of(lenient(cluster).ranges(start, end)) == [(NEWEST, 0, 7)]
    assert "left out entries 8 to 11, 4 in all" in caplog.text


def test_a_position_behind_a_ledger_shows_that_it_was_closed() -> None:
    """The metadata that is read after a restart may be older than a recorded position."""
    cluster, start, end = recorded(CHAIN)
    behind = {**end, "link": 1, "entry": 0}
    with pytest.raises(ReadFailedError, match="the ledger is not closed yet"):
        stream(cluster).ranges(start, behind)
    cluster.later_end = 11
    assert counts_of(stream(cluster).ranges(start, behind)) == [(NEWEST, 0, 11)]


def test_the_end_of_a_query_is_reached_if_its_ledger_is_closed_meanwhile() -> None:
    cluster, start, end = recorded(CHAIN)
    cluster.closed_at = 20
    source = stream(cluster)
    assert source.advance(start, end, ALL) == end
    assert counts_of(source.ranges(start, end)) == [(NEWEST, 0, 11)]


def test_a_ledger_that_is_closed_while_it_is_looked_at_has_its_last_end() -> None:
    """Its last entries were confirmed together with its end."""

    class Closing(OneReader):
        @property
        def is_closed(self) -> bool:  # type: ignore[explicit-override]
            self.cluster.lac = self.cluster.closed_at = 11
            return super().is_closed

    cluster = OneCluster(counts=[0], lac=7)
    info = OneReader(cluster, NEWEST).info
    client = SimpleNamespace(open_ledger=lambda *_, **_options: Closing(cluster, NEWEST))
    known = known_ledger(cast("Any", client), cast("Any", info), b"")
    assert (known.end, known.is_open) == (12, False)


def planned(cluster: OneCluster, monkeypatch: pytest.MonkeyPatch, end: int) -> list[EntryRange]:
    """Plan a batch query of the open ledger up to a given end."""
    monkeypatch.setattr(readers, "client_of", lambda _: cast("Any", cluster))
    monkeypatch.setattr(readers, "warn_of_hidden", lambda *_: None)
    ending = json.dumps({NEWEST: end})
    options = ReadOptions.of({**ADDRESS, **NAMED, "endingOffsets": ending})
    found = readers.LedgerBatchReader(options).partitions()
    return [wanted for partition in found for wanted in cast("RangePartition", partition).ranges]


def test_a_batch_query_reads_up_to_the_end_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = OneCluster(counts=[0], lac=7, later_lacs=[11])
    assert counts_of(planned(cluster, monkeypatch, 12)) == [(NEWEST, 0, 11)]
    assert counts_of(planned(cluster, monkeypatch, 5)) == [(NEWEST, 0, 4)]
    with pytest.raises(ReadFailedError, match="entries 12 to 19"):
        planned(cluster, monkeypatch, 20)
