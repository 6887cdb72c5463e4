"""Backlogs from offsets as Spark reports them."""

import json

import pytest

from spark_io.errors import OffsetError
from spark_io.progress import entries_behind


def progress(*sources: tuple[object, object]) -> dict[str, object]:
    return {
        "sources": [
            {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
            for end, latest in sources
        ]
    }


def test_topics_and_ledgers_are_counted_with_new_partitions() -> None:
    end = {"a": {"0": 5, "1": 7}, "$ids": {"a": "00"}}
    latest = {"a": {"0": 9, "1": 7, "2": 3}, "$ids": {"a": "00"}}
    assert entries_behind(progress((end, latest))) == 7
    assert entries_behind(progress((end, latest), ({"17": 5}, {"17": 25}))) == 27
    assert entries_behind(progress((latest, end))) == 0


def test_a_chain_is_counted_from_the_start_of_the_query() -> None:
    start = {"link": 3, "ledger": 0, "entry": 12}
    end = {"link": 5, "ledger": 0, "entry": 0, "entries": 40, "$ids": {"a": "00"}}
    assert entries_behind(progress((start, end))) == 40
    assert entries_behind(progress((end, end | {"link": 9, "entries": 90}), ({}, {"17": 2}))) == 52


def test_a_chain_without_a_count_and_an_unknown_offset_have_none() -> None:
    chain = {"link": 3, "ledger": 0, "entry": 12}
    assert entries_behind(progress((chain | {"entries": 4}, chain))) is None
    assert entries_behind(progress(({"17": 5}, None))) is None
    with pytest.raises(OffsetError, match="JSON was expected"):
        entries_behind({"sources": [{"endOffset": "{", "latestOffset": "{}"}]})
