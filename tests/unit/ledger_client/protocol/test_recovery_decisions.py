"""Decisions of a recovery at the edges of its rules, in the words of the transcripts.

`tests/scenarios/recovery_player.py` describes the words.
"""

import pytest

from bookie.wire.messages import Status
from ledger_client.protocol import recovery
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import EntryId, Version
from tests.scenarios.recovery_player import RecoveryPlayer
from tests.support.metadata.samples import A, B, open_ledger, token

SETUP = {"quorum": "3/3/2", "fragments": "0:a,b,c"}
FENCED = ("metadata in_recovery", "fenced a lac=4", "fenced b lac=3")
ENDED = ("found a 5 no_such_entry", "found b 5 no_such_entry")


def last_actions(*events: str, setup: dict[str, str] | None = None) -> list[str]:
    """Play events and return the actions of the last one."""
    player, actions = RecoveryPlayer(setup or SETUP), list[str]()
    for event in events:
        actions = player.play(event.split())
    return actions


def test_fences_are_sufficient_before_and_after_they_end() -> None:
    """What an unclean recovery asks before it gives entries up."""
    made = RecoveryProtocol()
    assert not made.has_sufficient_fences
    made.handle(e.MetadataRead(open_ledger().with_recovery_begun(token(3)), Version(1)))
    assert not made.has_sufficient_fences
    for bookie_id in (A, B):
        assert not made.has_sufficient_fences
        made.handle(e.FenceAnswered(bookie_id, Status.OK, EntryId(4), fenced=True))
    assert made.has_sufficient_fences


@pytest.mark.parametrize(
    "events",
    [
        ("metadata in_recovery", "fenced a unauthorized"),
        (*FENCED, "found a 5 unauthorized"),
        (*FENCED, "found a 5 5..9@50", "refused a 5 unauthorized"),
    ],
    ids=["fence", "read", "write"],
)
def test_another_password_ends_a_recovery_at_once(events: tuple[str, ...]) -> None:
    assert last_actions(*events) == ["fail unauthorized by a"]
    assert last_actions(*events, "fenced c lac=4") == []


def test_nothing_happens_after_the_end() -> None:
    closed = "metadata closed last=4 length=50"
    assert len(last_actions(closed)) == 1
    for event in ("metadata in_recovery", closed, "gone", "fenced a lac=4"):
        assert last_actions(closed, event) == []
        assert last_actions("gone", event) == []


def test_reading_pauses_while_too_much_is_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = {"quorum": "3/3/2/4", "fragments": "0:a,b,c"}
    found = ("metadata in_recovery", "fenced a lac=-1", "fenced b lac=-1")
    events = (*found, "found a 0 0..1023@0")
    assert any(action.startswith("read") for action in last_actions(*events, setup=setup))
    monkeypatch.setattr(recovery, "PENDING_BYTES_MAX", 10_241)
    assert any(action.startswith("read") for action in last_actions(*events, setup=setup))
    monkeypatch.setattr(recovery, "PENDING_BYTES_MAX", 10_240)
    assert not any(action.startswith("read") for action in last_actions(*events, setup=setup))


def test_a_ledger_that_is_open_again_is_not_closed() -> None:
    """Its metadata were restored from a backup."""
    events = ("metadata in_recovery", "fenced a lac=-1", "fenced b lac=-1")
    ended = ("found a 0 no_such_entry", "found b 0 no_such_entry")
    closing = "store closed last=-1 length=0 fragments=0:a,b,c at version"
    assert last_actions(*events, *ended) == [f"{closing} 1"]
    assert last_actions(*events, *ended, "metadata open") == ["fail fragments changed"]
    assert last_actions(*events, *ended, "metadata in_recovery") == [f"{closing} 2"]
