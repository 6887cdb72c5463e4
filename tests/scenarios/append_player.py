"""Plays transcripts of `AppendProtocol`.

Set-up: `quorum E/WQ/AQ[/S]`, `fragments 0:a,b,c`, and the options `delay`, `degraded`,
`unanswered N` (bytes).

Events:
    append 0 count=3 [bytes=10]                     one batch of entries from 0, 10 bytes each
    stored a 0 | refused a 0 STATUS                 a's answer to the batch that starts at 0
    failed a [gone|suspected|backlog]
    returned a | spare
    chosen 1=d | none needed=1 seen=3
    ok                                              the last compare-and-set was applied
    conflict STATE [fragments=...] [last=N length=N]  it was not: this is stored
    metadata-refused
    close | give-up
"""

from collections.abc import Mapping, Sequence

from ledger_client.errors import LedgerError, LedgerNotFoundError, QuorumTimeoutError
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from metadata.ids import BookieId, EntryId, Version
from metadata.ledger_metadata import LedgerMetadata, LedgerState
from tests.scenarios import words as w

BYTES_DEFAULT = "10"


class AppendPlayer:
    """One writer, and the last change of the metadata that it asked for."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._quorum = w.parse_quorum(setup["quorum"])
        self._fragments = w.parse_fragments(setup["fragments"])
        options = AppendOptions(
            delay_ensemble_change="delay" in setup,
            run_degraded="degraded" in setup,
            unanswered_bytes_max=int(setup.get("unanswered", "1000000")),
        )
        metadata = w.ledger(self._quorum, self._fragments, LedgerState.OPEN)
        self._version = 1
        self._protocol = AppendProtocol(metadata, Version(1), options)
        self._wanted: LedgerMetadata | None = None

    def play(self, words: Sequence[str]) -> list[str]:
        return [self._show(action) for action in self._protocol.handle(self._event(words))]

    def _event(self, words: Sequence[str]) -> e.AppendEvent:
        match words:
            case ["append", first, *rest]:
                options = w.parse_options(rest)
                count = int(options.get("count", "1"))
                size = int(options.get("bytes", BYTES_DEFAULT))
                return e.BatchAppended(EntryId(int(first)), count, count * size)
            case ["stored", bookie_id, first]:
                return e.BatchStored(EntryId(int(first)), BookieId(bookie_id))
            case ["refused", bookie_id, first, status]:
                known = w.parse_status(status)
                return e.StoreRefused(EntryId(int(first)), BookieId(bookie_id), known)
            case ["failed", bookie_id, *rest]:
                kind = e.FailureKind(rest[0] if rest else "gone")
                return e.BookieFailed(BookieId(bookie_id), kind, "test")
            case ["returned", bookie_id]:
                return e.BookieReturned(BookieId(bookie_id))
            case ["spare"]:
                return e.SpareJoined()
            case ["chosen", *pairs]:
                chosen = w.parse_options(pairs)
                by_position = {int(p): BookieId(b) for p, b in chosen.items()}
                return e.ReplacementsChosen(by_position, w.TOKEN)
            case ["none", *rest]:
                options = w.parse_options(rest)
                return e.NoReplacement(int(options["needed"]), int(options["seen"]), {})
            case _:
                return self._metadata_event(words)

    def _metadata_event(self, words: Sequence[str]) -> e.AppendEvent:
        self._version += 1
        match words:
            case ["ok"]:
                assert self._wanted is not None
                return e.MetadataStored(self._wanted, Version(self._version))
            case ["conflict", state, *rest]:
                options = w.parse_options(rest)
                fragments = self._fragments
                if "fragments" in options:
                    fragments = w.parse_fragments(options["fragments"])
                last, length = int(options.get("last", "-1")), int(options.get("length", "0"))
                found = w.ledger(self._quorum, fragments, LedgerState(state), last, length)
                return e.MetadataConflicted(found, Version(self._version))
            case ["metadata-refused"]:
                return e.MetadataRefused(LedgerNotFoundError("deleted", ledger_id=w.LEDGER))
            case ["close"]:
                return e.CloseRequested(w.TOKEN)
            case ["give-up"]:
                return e.WriterFailed(QuorumTimeoutError("too late", ledger_id=w.LEDGER))
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _show(self, action: e.AppendAction) -> str:
        match action:
            case e.SendBatch(first, bookie_ids):
                return f"send {first} to {','.join(bookie_ids)}"
            case e.Confirm(lac, length):
                return f"confirm lac={lac} length={length}"
            case e.Settle(entry_id):
                return f"settled {entry_id}"
            case e.RecordStretch(first, last):
                return f"short {first}..{last}"
            case e.ChooseReplacements(ensemble, positions, excluded):
                at = ",".join(str(p) for p in positions)
                return f"choose for {at} of {','.join(ensemble)} without {','.join(excluded)}"
            case e.StoreMetadata(metadata, expected):
                self._wanted = metadata
                return f"store {_show_ledger(metadata)} at version {expected}"
            case e.EnsembleChanged(fragment, replaced):
                left = ",".join(replaced) or "nobody"
                return f"changed {w.show_fragments([fragment])} left={left}"
            case e.FailWriter(error):
                return f"fail {_show_error(error)}"
            case e.Closed(metadata):
                return f"done {_show_ledger(metadata)}"


def _show_ledger(metadata: LedgerMetadata) -> str:
    fragments = w.show_fragments(metadata.fragments)
    if metadata.state is LedgerState.CLOSED:
        end = f"last={metadata.last_entry_id} length={metadata.length} "
        return f"closed {end}fragments={fragments}"
    return f"{metadata.state} fragments={fragments}"


def _show_error(error: LedgerError) -> str:
    return f"{type(error).__name__} outcome={error.outcome}"
