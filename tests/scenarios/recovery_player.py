"""Player of transcripts of `RecoveryProtocol`.

Set-up: `quorum E/WQ/AQ[/S]` or `in_sync E min N`, `fragments 0:a,b,c;5:a,b,d` (as first stored),
`bytes N` (of every entry; 10 unless given).

Events:
    metadata STATE [fragments=...] [last=N length=N]   read: at the start, at a conflict, on request
    stored                                             the last compare-and-set was applied
    gone                                               the ledger is deleted
    fenced a lac=4 | fenced a STATUS | fence-unproven a | fence-failed a REASON
    found a 5 5..9@50 10..12 [STATUS]    a's answer to a read from 5: whole batches (@ and the
                             length before) and slices, then its status for the next entry
    read-failed a 5 REASON
    length N | length-missing a:timeout
    written a 5 | refused a 5 STATUS | write-failed a 5 REASON
    replaced 1=d | no-replacement needed=1 seen=0
"""

from collections.abc import Mapping, Sequence

from bookie.wire.messages import Status
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import NO_ENTRY, BookieId, EntryId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.scenarios import words as w


class RecoveryPlayer:
    """One recovery, and its last requested change of the metadata."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._quorum = w.parse_quorum_of(setup)
        self._fragments = w.parse_fragments(setup["fragments"])
        self._entry_bytes = int(setup.get("bytes", "10"))
        self._protocol = RecoveryProtocol()
        self._version = 0
        self._wanted: LedgerMetadata | None = None

    def play(self, words: Sequence[str]) -> list[str]:
        return [self._show(action) for action in self._protocol.handle(self._event(words))]

    def _event(self, words: Sequence[str]) -> e.RecoveryEvent:
        match words:
            case ["metadata", state, *rest]:
                self._version += 1
                return e.MetadataRead(self._metadata(state, rest), Version(self._version))
            case ["stored"]:
                self._version += 1
                assert self._wanted is not None
                return e.MetadataStored(self._wanted, Version(self._version))
            case ["gone"]:
                return e.LedgerGone()
            case ["length", length]:
                return e.LengthFound(int(length))
            case ["length-missing", reasons]:
                return e.LengthMissing(w.parse_reasons(reasons))
            case ["replaced", *pairs]:
                chosen = w.parse_options(pairs)
                return e.ReplacementsChosen({int(p): BookieId(b) for p, b in chosen.items()})
            case ["no-replacement", *rest]:
                options = w.parse_options(rest)
                return e.ReplacementsMissing(int(options["needed"]), int(options["seen"]), {})
            case [word, bookie_id, *rest]:
                return self._answer(word, BookieId(bookie_id), rest)
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _answer(self, word: str, bookie_id: BookieId, rest: Sequence[str]) -> e.RecoveryEvent:
        match word, rest:
            case "fenced", [answer] if answer.startswith("lac="):
                lac = EntryId(int(answer.removeprefix("lac=")))
                return e.FenceAnswered(bookie_id, Status.OK, lac, True)
            case "fenced", [status]:
                return e.FenceAnswered(bookie_id, w.parse_status(status), NO_ENTRY, True)
            case "fence-unproven", []:
                return e.FenceAnswered(bookie_id, Status.OK, NO_ENTRY, False)
            case "fence-failed", [reason]:
                return e.FenceFailed(bookie_id, reason)
            case "found", [first, *found]:
                return self._found(bookie_id, EntryId(int(first)), found)
            case "read-failed", [first, reason]:
                return e.RangeFailed(bookie_id, EntryId(int(first)), reason)
            case "written", [first]:
                return e.SpanStored(bookie_id, EntryId(int(first)))
            case "refused", [first, status]:
                known = w.parse_status(status)
                return e.SpanRefused(bookie_id, EntryId(int(first)), known, status)
            case "write-failed", [first, reason]:
                return e.SpanRefused(bookie_id, EntryId(int(first)), None, reason)
            case _:
                raise ValueError(f"unknown event: {word} {bookie_id} {' '.join(rest)}")

    def _found(self, bookie_id: BookieId, first: EntryId, found: Sequence[str]) -> e.RangeAnswered:
        runs: list[e.FoundRun] = []
        status = Status.OK
        for word in found:
            entries, _at, length_before = word.partition("@")
            low, dots, high = entries.partition("..")
            if not dots:
                status = w.parse_status(word)
                continue
            lengths = (self._entry_bytes,) * (int(high) - int(low) + 1)
            before = int(length_before) if length_before else None
            runs.append(e.FoundRun(EntryId(int(low)), lengths, before))
        following = runs[-1].next_entry_id if runs else first
        return e.RangeAnswered(bookie_id, first, tuple(runs), following, status)

    def _metadata(self, state: str, rest: Sequence[str]) -> LedgerMetadata:
        options = w.parse_options(rest)
        fragments = self._fragments
        if "fragments" in options:
            fragments = w.parse_fragments(options["fragments"])
        last, length = int(options.get("last", "-1")), int(options.get("length", "0"))
        return w.ledger(self._quorum, fragments, LedgerState(state), last, length)

    def _show(self, action: e.RecoveryAction) -> str:  # noqa: PLR0911 - one line for each
        match action:
            case e.StoreInRecovery(on, version):
                self._wanted = on.with_recovery_begun(w.TOKEN)
                return f"store in_recovery at version {version}"
            case e.StoreClosed(on, version, recovered, last, length):
                self._wanted = on.with_recovered(recovered, last, length, w.TOKEN)
                return f"store {_show_ledger(self._wanted)} at version {version}"
            case e.ReadMetadata():
                return "read metadata"
            case e.Fence(bookie_id):
                return f"fence {bookie_id}"
            case e.ReadRange(bookie_id, first, last):
                return f"read {bookie_id} {first}..{last}"
            case e.FindLength(entry_id):
                return f"find length before {entry_id}"
            case e.WriteBack(bookie_id, span, lac):
                entries = f"{span.first_entry_id}..{span.next_entry_id - 1}"
                return f"write {bookie_id} {entries} lac={lac} length-before={span.length_before}"
            case e.ChooseReplacements(ensemble, positions, failed):
                at = ",".join(str(p) for p in positions)
                return f"replace {at} of {','.join(ensemble)} failed={w.show_reasons(failed)}"
            case e.ReleaseEntries(before):
                return f"release before {before}"
            case e.Finish(metadata):
                return f"done {_show_ledger(metadata)}"
            case e.Fail(failure):
                return f"fail {_show_failure(failure)}"


def _show_ledger(metadata: LedgerMetadata) -> str:
    fragments = w.show_fragments(metadata.fragments)
    return f"closed last={metadata.last_entry_id} length={metadata.length} fragments={fragments}"


def _show_failure(failure: e.RecoveryFailure) -> str:
    match failure:
        case e.Undecided(entry_id, _needed, missing, is_last_fragment_empty):
            empty = " last_fragment=empty" if is_last_fragment_empty else ""
            return f"undecided entry={entry_id} missing={w.show_reasons(missing)}{empty}"
        case e.PasswordRefused(bookie_id):
            return f"unauthorized by {bookie_id}"
        case e.OtherBytesStored(bookie_id, entry_id):
            return f"other bytes at {bookie_id} entry={entry_id}"
        case e.NoReplacement(needed, seen):
            return f"no replacement needed={needed} seen={seen}"
        case e.FragmentsChanged():
            return "fragments changed"
        case e.Deleted():
            return "deleted"
