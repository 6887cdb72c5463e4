"""Player of transcripts of losses: what bookies answered, and which entries are lost then.

Set-up: `quorum E/WQ/AQ[/S]`, `fragments 0:a,b,c`, and `last N` for a closed ledger.

Events:
    gone a REASON                            a bookie that is not asked
    silent a                                 no certain answer
    answered a readable=0..3,6..6 missing=4..5 damaged=7..7
    losses [even-if-unreachable]             rule 9.10, of a closed ledger
    end lac=3                                rule 9.11, of the last fragment of an open one
"""

from collections.abc import Mapping, Sequence

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.copies import ranges_by_bookie
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerState
from quire.repair.losses import BookieAnswers, judge_losses
from quire.repair.undecided_end import accepted_end
from tests.scenarios import words as w

BEYOND = 1_000
"""Entries that are judged in a ledger without an end."""


class LossPlayer:
    """The answers of the bookies of one ledger."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        quorum, fragments = w.parse_quorum(setup["quorum"]), w.parse_fragments(setup["fragments"])
        last = int(setup["last"]) if "last" in setup else None
        state = LedgerState.IN_RECOVERY if last is None else LedgerState.CLOSED
        self._ledger = w.ledger(quorum, fragments, state, last or 0, 0)
        found = ranges_by_bookie(self._ledger, BEYOND if last is None else last)
        self._answers = {bookie: BookieAnswers(bookie, ranges) for bookie, ranges in found.items()}

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["gone", bookie_id, reason]:
                self._answers[BookieId(bookie_id)].gone = reason
                return []
            case ["silent", _]:
                return []
            case ["answered", bookie_id, *rest]:
                answers, given = self._answers[BookieId(bookie_id)], w.parse_options(rest)
                answers.readable = _ranges(given.get("readable", ""))
                answers.missing = _ranges(given.get("missing", ""))
                answers.damaged = _ranges(given.get("damaged", ""))
                return []
            case ["losses", *rest]:
                return self._losses(gives_up="even-if-unreachable" in rest)
            case ["end", lac]:
                return self._end(EntryId(int(lac.removeprefix("lac="))))
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _losses(self, *, gives_up: bool) -> list[str]:
        given_up = [*self._answers] if gives_up else []
        report = judge_losses(self._ledger, [*self._answers.values()], given_up)
        shown = [f"lost {first}..{last}" for first, last in report.lost]
        shown += [f"unknown {first}..{last}" for first, last in report.unknown]
        return shown or ["nothing is lost"]

    def _end(self, lac: EntryId) -> list[str]:
        ledger = self._ledger
        asked = [answer for answer in self._answers.values() if not answer.gone]
        end = accepted_end(ledger.quorum, ledger.last_fragment, lac, asked)
        after = [f"lost {first}.." for first, last in end.lost_after if last == ENTRY_ID_MAX]
        return [f"end {end.last_entry_id}", *after]


def _ranges(text: str) -> list[Range]:
    pairs = [part.split("..") for part in text.split(",") if part]
    return [(int(first), int(last)) for first, last in pairs]
