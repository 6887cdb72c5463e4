"""Tests of the checks of log ends and starts, of groups' offsets, and of records stored once."""

from collections.abc import Iterator

import pytest

from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.topics.ending import check_log
from tests.simulation.topics.history import History, Leader, OffsetHistory, Seen, SentRecord

PLACE = ("orders", 0)
GROUP = ("workers", 1)
OLD, NEW = Leader(0, 1), Leader(1, 1)


@pytest.fixture
def model() -> Iterator[Model]:
    loop = SimulationLoop(0)
    yield Model(loop)
    loop.close()


def kinds(model: Model) -> list[str]:
    return [violation.checker for violation in model.violations]


def test_a_start_does_not_go_back_at_a_leader_of_a_later_epoch(model: Model) -> None:
    history = History(model)
    history.note_range("a", PLACE, OLD, history.known(PLACE, OLD, 3), None, 7, 3)
    before = history.known(PLACE, NEW, 4)
    history.note_range("a", PLACE, NEW, before, None, 7, 4)
    assert kinds(model) == []
    history.note_range("a", PLACE, NEW, before, None, 6, 4)
    assert kinds(model) == ["went back"]


def test_a_leader_of_an_earlier_epoch_may_not_know_yet(model: Model) -> None:
    history = History(model)
    history.note_range("a", PLACE, NEW, history.known(PLACE, NEW, 4), 9, 7, 4)
    history.note_range("a", PLACE, OLD, history.known(PLACE, OLD, 3), 5, 0, 3)
    assert kinds(model) == []


def test_an_end_does_not_go_back_at_a_leader_of_a_later_epoch(model: Model) -> None:
    history = History(model)
    history.note_range("a", PLACE, OLD, history.known(PLACE, OLD, 3), 9, None, 3)
    history.note_range("a", PLACE, NEW, history.known(PLACE, NEW, 4), 8, None, 4)
    assert kinds(model) == ["went back"]


def stored(history: History, name: str, offset: int, epoch: int) -> SentRecord:
    record = SentRecord(name.encode(), PLACE, "careless", offset + 1, is_unique=False)
    history.send(record)
    history.note_stored(record, offset, epoch)
    return record


def test_a_record_stored_once_is_lost_only_with_its_leader(model: Model) -> None:
    history = History(model)
    kept, lost = stored(history, "kept", 0, 3), stored(history, "lost", 1, 3)
    other = stored(history, "other", 1, 4)
    check_log(history, PLACE, [Seen(0, 3, kept), Seen(1, 4, other)])
    assert kinds(model) == []
    check_log(history, PLACE, [Seen(0, 3, kept), Seen(2, 3, other)])
    assert kinds(model) == ["lost"]
    assert lost.value in model.violations[0].text.encode()


def test_the_next_owner_shuts_out_earlier_commits(model: Model) -> None:
    offsets = OffsetHistory(model)
    first, late = offsets.ask(GROUP), offsets.ask(GROUP)
    offsets.note_acknowledged(GROUP, first)
    offsets.note_told("next", GROUP, first, first)
    offsets.note_taken_over(GROUP, [late], first)
    mine = offsets.ask(GROUP)
    offsets.note_acknowledged(GROUP, mine)
    offsets.note_told("next", GROUP, mine, mine)
    assert kinds(model) == []
    offsets.note_told("next", GROUP, mine, late)
    assert kinds(model) == ["offset back"]


def test_a_refused_offset_is_not_returned(model: Model) -> None:
    offsets = OffsetHistory(model)
    refused = offsets.ask(GROUP)
    offsets.note_refused(GROUP, refused)
    offsets.note_told("auditor", GROUP, None, refused)
    assert kinds(model) == ["offset back"]
