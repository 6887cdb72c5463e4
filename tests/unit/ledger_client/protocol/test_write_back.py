"""Writing back what a recovery found: spans, failures and replacements (rules 5.3, 7.4, 11.5)."""

from ledger_client.protocol.recovery_events import (
    ChooseReplacements,
    NoReplacement,
    ReplacementsMissing,
    WriteBack,
)
from ledger_client.protocol.recovery_read import Stretch
from ledger_client.protocol.recovery_write import WriteAction, WriteBackPhase
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumMode, QuorumSpec

A, B, C, D, E = NAMES = tuple(map(BookieId, "abcde"))
MISSING = ReplacementsMissing(1, 2, {})


def phase(quorum: QuorumSpec | None = None, start: int = 5) -> WriteBackPhase:
    """Return a phase for a ledger with 100 bytes before the start; stripes of four entries."""
    quorum = quorum or QuorumSpec(3, 3, 2, 4)
    fragment = Fragment(EntryId(0), NAMES[: quorum.ensemble_size])
    return WriteBackPhase(quorum, fragment, EntryId(start), 100)


def add(writing: WriteBackPhase, first: int, *lengths: int) -> list[str]:
    return shown(writing.add(Stretch(EntryId(first), lengths)))


def shown(actions: list[WriteAction]) -> list[str]:
    """Return writes in the order of their bookies, then choices."""
    words = []
    for action in actions:
        match action:
            case WriteBack(bookie_id, span, lac):
                words.append(f"{bookie_id} {span.first_entry_id}+{span.count} lac={lac}")
            case ChooseReplacements(ensemble, positions, excluded):
                at = ",".join(map(str, positions))
                words.append(f"choose {at} of {''.join(ensemble)} without {','.join(excluded)}")
    return sorted(words, key=lambda word: (word.startswith("choose"), word))


def stored(writing: WriteBackPhase, first: int, *bookie_ids: BookieId) -> None:
    for bookie_id in bookie_ids:
        writing.stored(bookie_id, EntryId(first))


def test_what_waits_is_counted_in_bytes() -> None:
    writing = phase()
    assert (writing.pending_bytes, writing.is_done) == (0, True)
    add(writing, 5, 10, 20, 30, 40)
    assert (writing.length, writing.pending_bytes) == (200, 100)
    stored(writing, 8, A, B)
    assert (writing.pending_bytes, writing.first_pending_entry_id) == (100, 5)
    stored(writing, 5, A, C)
    assert (writing.pending_bytes, writing.first_pending_entry_id) == (0, 9)
    assert writing.is_done


def test_spans_end_with_their_stripes_and_go_to_their_write_sets() -> None:
    writing = phase(QuorumSpec(4, 2, 2, 4))
    assert add(writing, 5, 1, 1, 1, 1) == [
        "b 5+3 lac=4",
        "c 5+3 lac=4",
        "c 8+1 lac=4",
        "d 8+1 lac=4",
    ]


def test_a_failed_bookie_gets_nothing_and_is_replaced_once_something_waits() -> None:
    writing = phase()
    assert writing.failed(B, "away") == []
    assert add(writing, 5, 1) == ["a 5+1 lac=4", "c 5+1 lac=4", "choose 1 of abc without b"]
    assert writing.failed(B, "again") == []
    assert writing.failed(C, "away") == [], "a choice is under way"
    assert shown(writing.replaced({1: D})) == ["d 5+1 lac=4", "choose 2 of adc without b,c"]
    assert writing.failed(B, "late") == [], "it has no position any more"
    assert shown(writing.replaced({2: E})) == ["e 5+1 lac=4"]
    stored(writing, 5, B, C)
    assert not writing.is_done, "bookies that were replaced do not count"
    stored(writing, 5, D, E)
    assert writing.is_done
    assert writing.changed_fragments() == (Fragment(EntryId(5), (A, D, E)),)


def test_a_bookie_of_no_position_is_not_a_failure() -> None:
    writing = phase()
    add(writing, 5, 1)
    assert writing.failed(E, "away") == []
    assert shown(writing.failed(A, "away")) == ["choose 0 of abc without a"]


def test_only_failed_positions_are_replaced() -> None:
    writing = phase()
    add(writing, 5, 1)
    writing.failed(B, "away")
    assert shown(writing.replaced({0: D, 1: E})) == ["e 5+1 lac=4"]
    assert writing.changed_fragments() == (Fragment(EntryId(5), (A, E, C)),)


def test_a_replacement_gets_only_the_spans_of_its_position() -> None:
    writing = phase(QuorumSpec(4, 2, 2, 4))
    add(writing, 5, 1, 1, 1, 1)
    writing.failed(B, "away")
    assert shown(writing.replaced({1: E})) == ["e 5+3 lac=4"]


def test_too_few_bookies_are_a_failure_once_no_choice_is_under_way() -> None:
    writing = phase()
    add(writing, 5, 1)
    stored(writing, 5, A)
    assert writing.verdict() is None
    writing.failed(A, "away")
    writing.failed(B, "away")
    writing.failed(C, "away")
    assert writing.verdict() is None, "replacements are being chosen"
    assert shown(writing.without_replacement(MISSING)) == ["choose 0,1,2 of abc without a,b,c"]
    assert writing.verdict() is None, "more have failed since the first search"
    assert writing.without_replacement(MISSING) == []
    assert writing.verdict() == NoReplacement(1, 2, {}, "")


def test_what_is_stored_at_a_failed_bookie_counts() -> None:
    writing = phase()
    add(writing, 5, 1)
    stored(writing, 5, A)
    writing.failed(A, "away")
    writing.failed(B, "away")
    writing.without_replacement(MISSING)
    writing.without_replacement(MISSING)
    assert writing.verdict() is None, "c can still store it"
    stored(writing, 5, C)
    assert writing.is_done
    assert writing.verdict() is None
    assert writing.changed_fragments() == ()


def test_after_a_shortage_a_later_failure_searches_again() -> None:
    writing = phase()
    add(writing, 5, 1)
    writing.failed(A, "away")
    assert writing.without_replacement(MISSING) == []
    assert writing.failed(A, "away") == []
    assert shown(writing.failed(B, "away")) == ["choose 0,1 of abc without a,b"]


def test_a_replacement_before_any_entry_opens_no_fragment() -> None:
    """Nothing waits when the answer comes, and nothing is added later."""
    writing = phase()
    add(writing, 5, 1)
    writing.failed(B, "away")
    stored(writing, 5, A, C)
    assert writing.replaced({1: D}) == []
    assert writing.changed_fragments() == (), "it would be empty"
    add(writing, 6, 1)
    assert writing.changed_fragments() == (Fragment(EntryId(6), (A, D, C)),)


def test_in_sync_the_members_that_remain_are_enough() -> None:
    in_sync = QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 1)
    writing = phase(in_sync)
    add(writing, 5, 1)
    stored(writing, 5, A)
    writing.failed(B, "away")
    assert writing.without_replacement(MISSING) == []
    assert not writing.is_done
    stored(writing, 5, C)
    assert writing.is_done
    assert writing.changed_fragments() == (Fragment(EntryId(5), (A, C)),)


def test_in_sync_members_stay_while_nothing_waits() -> None:
    writing = phase(QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 1))
    add(writing, 5, 1)
    writing.failed(B, "away")
    stored(writing, 5, A, B, C)
    assert writing.without_replacement(MISSING) == []
    assert writing.changed_fragments() == ()
    assert add(writing, 6, 1) == ["a 6+1 lac=4", "c 6+1 lac=4"]
    assert writing.changed_fragments() == ()


def test_an_answer_that_replaces_nothing_is_no_shortage() -> None:
    """A placement says so if it finds no bookies; until then it is asked."""
    writing = phase()
    add(writing, 5, 1)
    writing.failed(B, "away")
    assert shown(writing.replaced({})) == ["choose 1 of abc without b"]
    assert writing.verdict() is None
