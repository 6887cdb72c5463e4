"""Decisions of a writer at the edges of its rules, in the words of the transcripts.

`tests/scenarios/append_player.py` describes the words.
"""

from dataclasses import replace

import pytest

from ledger_client.errors import TooManyFragmentsError
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, Fragment, LedgerMetadata, QuorumSpec
from tests.scenarios.append_player import AppendPlayer
from tests.support.metadata.samples import A, B, C, D, open_ledger

TOKEN = UpdateToken(bytes(16))
QUORUM = {"quorum": "3/3/2", "fragments": "0:a,b,c"}
TWO_IN_SYNC = {"in_sync": "3 min 2", "fragments": "0:a,b"}
THREE_IN_SYNC = {"in_sync": "3 min 3", "fragments": "0:a,b,c"}


def last_actions(setup: dict[str, str], *events: str) -> list[str]:
    """Play events and return the actions of the last one."""
    player, actions = AppendPlayer(setup), list[str]()
    for event in events:
        actions = player.play(event.split())
    return actions


# -- what a writer shows ---------------------------------------------------------------------------


def test_a_writer_shows_its_state() -> None:
    writer = AppendProtocol(open_ledger(), Version(1), AppendOptions())
    assert (writer.lac, writer.in_sync, writer.lacks_in_sync) == (-1, (), False)
    writer.handle(e.BatchAppended(EntryId(0), 3, 30))
    for bookie_id in (A, B):
        writer.handle(e.BatchStored(EntryId(0), bookie_id))
    assert writer.lac == 2
    assert (writer.is_changing, writer.has_ended) == (False, False)
    writer.handle(e.BookieFailed(C, e.FailureKind.GONE, "x"))
    assert writer.is_changing
    writer.handle(e.ReplacementsChosen({2: D}, TOKEN))
    assert writer.is_changing
    writer.handle(
        e.MetadataRefused(TooManyFragmentsError("x", ledger_id=writer.metadata.ledger_id))
    )
    assert writer.has_ended


def test_a_writer_shows_the_bookies_that_fence_by_mistake() -> None:
    writer = AppendProtocol(open_ledger(), Version(1), AppendOptions())
    writer.handle(e.BookieFailed(C, e.FailureKind.FENCED, "x"))
    writer.handle(e.MetadataConflicted(writer.metadata, Version(1)))
    assert list(writer.false_fences) == [C]


def test_a_bookie_that_is_no_member_lacks_nothing() -> None:
    assert last_actions(QUORUM, "append 0 count=5", "lag a") == ["a lacks 5"]
    assert last_actions(QUORUM, "append 0 count=5", "lag x") == ["x lacks 0"]
    assert last_actions(QUORUM, "append 0 count=5", "failed a", "lag a") == ["a lacks 0"]


def test_only_members_are_suspected_and_only_between_changes() -> None:
    assert last_actions(QUORUM, "suspectable a") == ["yes"]
    assert last_actions(QUORUM, "suspectable x") == ["no"]
    assert last_actions(QUORUM, "failed b", "suspectable a") == ["no"]
    assert last_actions(QUORUM, "close", "suspectable a") == ["no"]


# -- entries ---------------------------------------------------------------------------------------


def test_nothing_is_sent_while_all_members_have_failed() -> None:
    assert last_actions(QUORUM, "failed a", "failed b", "failed c", "append 0") == []


def test_a_lagging_member_stays_out_until_it_has_the_oldest_entry() -> None:
    events = ("append 0", "append 1", "failed b lagging")
    setup = {**TWO_IN_SYNC, "in_sync": "2 min 2"}
    shown = [*events, "stored b 1", "shown"]
    assert last_actions(setup, *shown) == ["in sync a, appends refused"]
    assert last_actions(setup, *shown, "stored b 0", "shown") == ["in sync a,b"]


@pytest.mark.parametrize("status", ["conflict", "unauthorized", "deleted", "fenced", "bad_request"])
def test_a_refusal_by_no_member_changes_nothing(status: str) -> None:
    assert (
        last_actions(QUORUM, "append 0", "refused b 0 bad_request", f"refused x 0 {status}") == []
    )


def test_a_fixed_member_that_fails_is_not_awaited_for_what_is_confirmed() -> None:
    events = ("append 0", "stored a 0", "stored b 0", "failed c")
    assert last_actions({**QUORUM, "fixed": ""}, *events) == ["short 0..0", "settled 0"]


def test_in_quorum_mode_no_member_is_needed_in_every_fragment() -> None:
    stored = [f"stored {each} 0" for each in "abc"]
    failed = ("failed a", "failed b", "failed c", "chosen 0=d", "ok", "chosen 1=e 2=f", "ok")
    events = ("append 0", *stored, *failed, "append 1", "stored d 1", "stored e 1")
    assert last_actions(QUORUM, *events) == ["confirm lac=1 length=20"]


# -- changes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["chosen 1=d", "none needed=1 seen=3", "members"])
def test_a_choice_that_was_not_asked_for_is_ignored(event: str) -> None:
    assert last_actions(QUORUM, "append 0", event) == []
    assert last_actions(TWO_IN_SYNC, "append 0", event) == []


def test_a_parked_member_is_replaced_only_once_a_spare_joins() -> None:
    """Not whenever the metadata are read, or another member was replaced."""
    setup = {"quorum": "5/5/2", "fragments": "0:a,b,c,d,e", "degraded": ""}
    parked = ("failed c", "none needed=1 seen=4")
    assert last_actions(setup, *parked, "seen fragments=0:a,b,c,d,e") == []
    replaced = (*parked, "failed b", "chosen 1=x", "ok")
    assert last_actions(setup, *replaced) == ["changed 0:a,x,c,d,e left=b"]
    assert last_actions(setup, *replaced, "spare") == ["choose for 2 of a,x,c,d,e without c"]


def full_ledger(count: int) -> LedgerMetadata:
    fragments = tuple(Fragment(EntryId(2 * i), (A, B, C)) for i in range(count))
    return replace(open_ledger(7, *fragments), quorum=QuorumSpec(3, 3, 2))


@pytest.mark.parametrize(
    ("count", "confirms", "is_refused"),
    [
        (FRAGMENTS_MAX - 1, True, False),
        (FRAGMENTS_MAX, False, False),
        (FRAGMENTS_MAX, True, True),
    ],
)
def test_a_ledger_has_a_largest_number_of_fragments(
    count: int, confirms: bool, is_refused: bool
) -> None:
    """The last fragment can still be changed where it starts."""
    first = EntryId(2 * (count - 1))
    writer = AppendProtocol(full_ledger(count), Version(1), AppendOptions())
    writer._pending.lap = writer._pending.lac = EntryId(first - 1)  # a long history
    if confirms:
        writer.handle(e.BatchAppended(first, 1, 10))
        writer.handle(e.BatchStored(first, A))
        writer.handle(e.BatchStored(first, B))
    writer.handle(e.BookieFailed(C, e.FailureKind.GONE, "x"))
    (action,) = writer.handle(e.ReplacementsChosen({2: D}, TOKEN))
    if is_refused:
        assert isinstance(action, e.FailWriter)
        assert isinstance(action.error, TooManyFragmentsError)
    else:
        assert isinstance(action, e.StoreMetadata)
        assert len(action.metadata.fragments) == count + confirms


# -- metadata --------------------------------------------------------------------------------------


def test_a_read_that_finds_the_same_version_decides_a_fence() -> None:
    events = ("append 0", "refused c 0 fenced", "found open version=1")
    assert last_actions(QUORUM, *events) == ["choose for 2 of a,b,c without c"]


def test_of_two_values_the_newer_one_counts() -> None:
    """What was seen while a change was under way may be older than the change."""
    change = ("failed c", "chosen 2=d", "seen fragments=0:a,b,c version={seen}", "ok version=5")
    older = [each.format(seen=4) for each in change]
    assert last_actions(QUORUM, *older) == ["changed 0:a,b,d left=c"]
    newer = [each.format(seen=6) for each in change]
    assert last_actions(QUORUM, *newer) == [
        "changed 0:a,b,c left=none",
        "choose for 2 of a,b,c without c",
    ]


def test_a_value_that_is_known_already_changes_nothing() -> None:
    parked = ("append 0", "failed b gone", "shown")
    assert last_actions(TWO_IN_SYNC, *parked) == ["in sync a, appends refused"]
    for version in (0, 1):
        assert last_actions(TWO_IN_SYNC, *parked, f"seen version={version}") == []


@pytest.mark.parametrize(
    "known",
    [
        ("seen version=1",),
        ("failed c", "chosen 2=d", "seen fragments=0:a,b,d version=2", "ok version=2"),
    ],
)
def test_a_version_that_was_seen_does_not_hide_that_the_service_went_back(
    known: tuple[str, ...],
) -> None:
    """The watch reports the version that the writer knows; then a backup is restored (4.7)."""
    events = (*known, "append 0", "refused b 0 fenced", "found open version=0")
    assert last_actions(QUORUM, *events) == ["fail LedgerNotFoundError outcome=unknown"]


def test_a_writer_that_has_failed_learns_nothing_more() -> None:
    events = ("append 0", "give-up", "seen fragments=0:a,b,c version=7")
    assert last_actions(QUORUM, *events) == []
    assert last_actions(QUORUM, *events, "close")[-1].endswith("at version 1")


@pytest.mark.parametrize(
    ("found", "action"),
    [
        ("closed last=0 length=10", "done closed last=0 length=10 fragments=0:a,b,c"),
        ("closed last=0 length=11", "fail LedgerFencedError outcome=unknown"),
        ("closed last=1 length=10", "fail LedgerFencedError outcome=unknown"),
        ("in_recovery", "fail LedgerFencedError outcome=unknown"),
    ],
)
def test_a_close_is_the_writers_own_only_with_its_end_and_length(found: str, action: str) -> None:
    events = ("append 0", "stored a 0", "stored b 0", "stored c 0", "close", f"conflict {found}")
    assert last_actions(QUORUM, *events) == [action]


def test_a_close_that_the_writer_did_not_ask_for_ends_it() -> None:
    events = ("failed c", "chosen 2=d", "conflict closed last=-1 length=0")
    assert last_actions(QUORUM, *events) == ["fail LedgerFencedError outcome=unknown"]


def test_nothing_happens_after_the_end() -> None:
    for event in ("append 0", "failed a", "close", "seen closed last=-1 length=0"):
        assert last_actions(QUORUM, "close", "ok", event) == []


@pytest.mark.parametrize("missing", "abc")
def test_what_is_short_at_the_close_is_recorded(missing: str) -> None:
    stored = [f"stored {each} 0" for each in "abc" if each != missing]
    actions = last_actions(QUORUM, "append 0", *stored, "close")
    assert actions[0] == "short 0..0"


def test_members_of_a_quorum_ledger_are_not_said_to_be_in_sync() -> None:
    writer = AppendProtocol(open_ledger(), Version(1), AppendOptions())
    assert writer.in_sync == ()
    assert writer.lag_entries(BookieId("x")) == 0
