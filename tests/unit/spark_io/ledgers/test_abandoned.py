"""Warnings about open ledgers without a writer, and what a batch query does about them."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from ledger_client import (
    AbandonedLedger,
    AbandonedLedgers,
    AbandonedRecovered,
    LedgerError,
    MetadataUnavailableError,
    UnauthorizedError,
)
from metadata.ids import LedgerId
from spark_io.ledgers import readers
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.selecting import (
    WARNED_LEDGERS_MAX,
    SelectedLedgers,
    recover,
    warn_of_hidden,
)
from spark_io.ranges import EntryRange, PackedRanges
from spark_io.readers import RangePartition
from tests.support.spark_io.one_cluster import OneCluster, OneReader

if TYPE_CHECKING:
    from ledger_client.sync import LedgerClient

NOTHING_FOUND, NOTHING_DONE = AbandonedLedgers((), 0), AbandonedRecovered((), {})
GRANT = "User:etl may not fence it: `quire grant add 'User:etl' recoverer ledger:7`"


@dataclass
class Answers:
    """Answers of a client about abandoned ledgers."""

    found: AbandonedLedgers = NOTHING_FOUND
    done: AbandonedRecovered = NOTHING_DONE
    error: LedgerError | None = None
    password: bytes = b"secret"
    asked: list[int] = field(default_factory=list)

    def abandoned_ledgers(self, ledger_ids: Iterable[int], *, password: bytes) -> AbandonedLedgers:
        assert password == self.password
        self.asked += ledger_ids
        if self.error is not None:
            raise self.error
        return self.found

    def open_ledger(self, ledger_id: int, **_options: object) -> OneReader:
        return OneReader(OneCluster(lac=5), ledger_id)

    def recover_abandoned(
        self, ledger_ids: Iterable[int], *, password: bytes
    ) -> AbandonedRecovered:
        assert password == self.password
        self.asked += ledger_ids
        return self.done


def known(ledger_id: int, end: int = 5, *, is_closed: bool = False) -> EntryRange:
    return EntryRange(ledger_id, 0, end - 1, 1.0, is_open=not is_closed)


def warned(answers: Answers, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING, "spark_io"):
        warn_of_hidden(cast("LedgerClient", answers), [known(7), known(8)], answers.password)
    assert answers.asked == [7, 8]
    return caplog.messages


def recovered(answers: Answers, *ledgers: EntryRange) -> bool:
    return recover(cast("LedgerClient", answers), ledgers, b"secret")


@pytest.mark.parametrize(("password", "option"), [(b"", ""), (b"secret", " --password-file FILE")])
def test_a_warning_has_the_ledger_what_is_hidden_and_the_remedy(
    caplog: pytest.LogCaptureFixture, password: bytes, option: str
) -> None:
    ledgers = AbandonedLedger(7, -1, 49), AbandonedLedger(8, 9, 10)
    answers = Answers(AbandonedLedgers(ledgers, 3), password=password)
    assert warned(answers, caplog) == [
        "the writers of open ledgers are gone, and entries that they may have acknowledged are not "
        f"read: ledger 7, entries 0 to 49, 50 in all (`quire ledger recover 7{option}`); ledger 8, "
        f"entries 10 to 10, 1 in all (`quire ledger recover 8{option}`); 3 more ledgers, whose "
        "bookies were not asked. With the option recoverOpenLedgers=true a query recovers them "
        "first"
    ]


def test_without_hidden_entries_there_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(Answers(), caplog) == []


def test_a_query_does_not_fail_because_writers_cannot_be_looked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = Answers(error=MetadataUnavailableError("100% gone"))
    (warning,) = warned(answers, caplog)
    assert warning == "whether the writers of open ledgers are gone is not known: 100% gone"


def test_a_missing_right_is_a_warning_with_the_grant(caplog: pytest.LogCaptureFixture) -> None:
    refused = UnauthorizedError(GRANT, ledger_id=LedgerId(7))
    assert not recovered(Answers(done=AbandonedRecovered((), {7: refused})), known(7, end=5))
    assert caplog.messages == [
        "open ledgers whose writers are gone were not recovered: "
        f"ledger 7: {GRANT} (its entries before entry 5 are read)"
    ]


def test_a_warning_names_few_ledgers(caplog: pytest.LogCaptureFixture) -> None:
    ledgers = [known(number) for number in range(WARNED_LEDGERS_MAX + 2)]
    failures = {ledger.ledger_id: LedgerError("no") for ledger in ledgers}
    recovered(Answers(done=AbandonedRecovered((), failures)), *ledgers)
    (warning,) = caplog.messages
    assert warning.count("no (its entries") == WARNED_LEDGERS_MAX
    assert warning.endswith("; 2 more")


def test_ledgers_that_ended_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    assert recovered(Answers(done=AbandonedRecovered((7,), {})), known(7))
    assert caplog.messages == []


def test_only_open_ledgers_are_asked_about() -> None:
    """Ledgers of packed links are closed, so they are not even looked through."""
    closed, opened = known(1, is_closed=True), known(2)
    selected = SelectedLedgers([PackedRanges([closed]), (closed, opened)])
    assert list(selected.open_ledgers()) == [opened]
    assert list(selected) == [closed, closed, opened]


@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ({}, [2]),
        ({"endingEntry": "5"}, []),
        ({"endingEntry": "6"}, [2]),
        ({"endingOffsets": '{"2": 5}'}, []),
        ({"endingOffsets": '{"2": 6}'}, [2]),
        ({"endingOffsets": '{"1": 5}'}, [2]),
    ],
)
def test_only_open_ledgers_that_are_read_to_their_ends_are_asked_about(
    bound: dict[str, str], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers()
    found = SelectedLedgers([[known(1, is_closed=True), known(2)]])
    monkeypatch.setattr(readers, "client_of", lambda _: answers)
    monkeypatch.setattr(readers, "find_ledgers", lambda *_, **_options: found)
    options = {"metadata": "zk://127.0.0.1:2181/quire", "ledgers": "1,2", "password": "secret"}
    readers.LedgerBatchReader(ReadOptions.of({**options, **bound})).partitions()
    assert answers.asked == asked


@pytest.mark.parametrize("ended", [(), (2,)])
def test_a_plan_reads_the_ledgers_again_if_some_ended(
    ended: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [SelectedLedgers([[known(2)]]), SelectedLedgers([[known(2, end=9, is_closed=True)]])]
    monkeypatch.setattr(readers, "client_of", lambda _: Answers(done=AbandonedRecovered(ended, {})))
    monkeypatch.setattr(readers, "find_ledgers", lambda *_, **_options: plans.pop(0))
    options = {"metadata": "zk://127.0.0.1:2181/quire", "ledger": "2", "password": "secret"}
    reader = readers.LedgerBatchReader(ReadOptions.of({**options, "recoverOpenLedgers": "true"}))
    (partition,) = reader.partitions()
    assert isinstance(partition, RangePartition)
    assert [range_.last for range_ in partition.ranges] == ([8] if ended else [4])
