"""Tests of a campaign's history: it is read as it was written, even while it grows."""

import os
from pathlib import Path

from tests.campaign.history import HistoryFile, HistoryFollower, read_history
from tests.campaign.payloads import Payloads, digest_of_payloads


def test_facts_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history"
    file, follower = HistoryFile(path), HistoryFollower(path)
    assert follower.catch_up().ledgers == {}
    file.tell("created", ledger=3, ensemble=["a", "b", "c"])
    file.tell("acked", ledger=3, first=0, last=4, digest="d")
    file.tell("lac", ledger=3, lac=4)
    file.tell("lac", ledger=3, lac=2)
    assert follower.catch_up().acked_count == 5
    file.tell("failed", ledger=3, doing="append", error="LedgerFencedError", text="why")
    assert follower.catch_up().unended == [3]
    file.tell("ended", ledger=3, last=4, how="recovered")
    file.close()
    assert follower.catch_up() == read_history(path)
    ledger = follower.history.ledgers[3]
    assert (ledger.lac, ledger.lac_regressions) == (4, 1)
    assert (ledger.ended, ledger.end_last) == ("recovered", 4)
    assert follower.history.failures == {"LedgerFencedError": 1}
    (error,) = follower.history.errors
    assert (error.ledger_id, error.doing, error.error) == (3, "append", "LedgerFencedError")


def test_all_bookies_of_a_writer_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "history"
    file = HistoryFile(path)
    file.tell("created", ledger=3, ensemble=["a", "b", "c"])
    file.tell("ensemble_changed", ledger=3, ensemble=["a", "d", "c"])
    file.close()
    ledger = read_history(path).ledgers[3]
    assert ledger.ensemble == ("a", "d", "c")
    assert list(ledger.members) == ["a", "b", "c", "d"]


def test_an_incomplete_line_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'{"event":"created","led')
    follower = HistoryFollower(path)
    assert follower.catch_up().ledgers == {}
    with path.open("ab") as file:
        file.write(b'ger":1,"ensemble":["a"]}\n')
        os.fsync(file.fileno())
    assert list(follower.catch_up().ledgers) == [1]


def test_payloads_are_determined_and_differ() -> None:
    one, again, other = Payloads(1), Payloads(1), Payloads(2)
    first = one.make_range(5, 0, 999)
    assert first == again.make_range(5, 0, 999)
    assert digest_of_payloads(first) != digest_of_payloads(other.make_range(5, 0, 999))
    told = [payload for payload in first if payload]
    assert len(set(told)) == len(told) > 900
