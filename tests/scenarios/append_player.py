"""Player of transcripts of `AppendProtocol`.

Set-up: `quorum E/WQ/AQ[/S]` or `in_sync E min N`, `fragments 0:a,b,c`, and the options `delay`,
`degraded`, `fixed`, `unanswered N` (bytes).

Events:
    append 0 count=3 [bytes=10]                     one batch of entries from 0, 10 bytes each
    stored a 0 | refused a 0 STATUS                 a's answer to the batch that starts at 0
    failed a [gone|suspected|backlog|lagging]
    returned a | spare | ready d                    d, no member, can become one
    members                                         the token for the members proposed
    seen [STATE] fragments=... [version=N]          others stored the ledger with these values
    chosen 1=d | none needed=1 seen=3
    ok                                              the last compare-and-set was applied
    conflict STATE [fragments=...] [last=N length=N]  it was not: this is the stored value
    found STATE [version=N] [recreated] ...         the answer to "read the metadata"
    metadata-refused
    unsent                                          nothing of the change was sent (5.9)
    close | give-up | deleted                       deleted: as the writer's watch sees it
    shown | lag a | suspectable a                   shows in-sync members, what a lacks, 5.7
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ledger_client.errors import LedgerError, LedgerNotFoundError, QuorumTimeoutError
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.scenarios import words as w

BYTES_DEFAULT = "10"
OTHERS = UpdateToken(bytes([255]) * UPDATE_TOKEN_BYTES)


class AppendPlayer:
    """One writer, and its last requested change of the metadata."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._quorum = w.parse_quorum_of(setup)
        fragments = w.parse_fragments(setup["fragments"])
        options = AppendOptions(
            delay_ensemble_change="delay" in setup,
            run_degraded="degraded" in setup,
            fixed_membership="fixed" in setup,
            unanswered_bytes_max=int(setup.get("unanswered", "1000000")),
        )
        metadata = w.ledger(self._quorum, fragments, LedgerState.OPEN)
        self._version = 1
        self._protocol = AppendProtocol(metadata, Version(1), options)
        self._wanted: LedgerMetadata | None = None

    def play(self, words: Sequence[str]) -> list[str]:
        protocol = self._protocol
        match words:
            case ["shown"]:
                refused = ", appends refused" if protocol.lacks_in_sync else ""
                return [f"in sync {','.join(protocol.in_sync) or 'none'}{refused}"]
            case ["lag", bookie_id]:
                return [f"{bookie_id} lacks {protocol.lag_entries(BookieId(bookie_id))}"]
            case ["suspectable", bookie_id]:
                return [
                    "yes" if protocol.may_suspect(BookieId(bookie_id), has_spare=True) else "no"
                ]
            case _:
                return [self._show(action) for action in protocol.handle(self._event(words))]

    def _event(self, words: Sequence[str]) -> e.AppendEvent:  # noqa: PLR0911 - one line for each
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
            case ["ready", bookie_id]:
                return e.MemberReady(BookieId(bookie_id), w.TOKEN)
            case ["unsent"]:
                return e.ChangeUnsent()
            case ["members"]:
                return e.MembersProposed(w.TOKEN)
            case ["chosen", *pairs]:
                chosen = w.parse_options(pairs)
                by_position = {int(p): BookieId(b) for p, b in chosen.items()}
                return e.ReplacementsChosen(by_position, w.TOKEN)
            case ["none", *rest]:
                options = w.parse_options(rest)
                return e.ReplacementsMissing(int(options["needed"]), int(options["seen"]), {})
            case _:
                return self._metadata_event(words)

    def _metadata_event(self, words: Sequence[str]) -> e.AppendEvent:
        self._version += 1
        match words:
            case ["seen", *rest]:
                options = w.parse_options(rest)
                self._version = int(options.pop("version", str(self._version)))
                return e.MetadataSeen(self._found(options), Version(self._version))
            case ["ok", *rest]:
                assert self._wanted is not None
                version = w.parse_options(rest).get("version", str(self._version))
                return e.MetadataStored(self._wanted, Version(int(version)))
            case ["conflict" | "found", *rest]:
                options = w.parse_options(rest)
                self._version = int(options.pop("version", str(self._version)))
                return e.MetadataConflicted(self._found(options), Version(self._version))
            case ["metadata-refused"]:
                return e.MetadataRefused(LedgerNotFoundError("deleted", ledger_id=w.LEDGER))
            case ["close"]:
                return e.CloseRequested(w.TOKEN)
            case ["deleted"]:
                return e.WriterFailed(LedgerNotFoundError("deleted", ledger_id=w.LEDGER))
            case ["give-up"]:
                return e.WriterFailed(QuorumTimeoutError("too late", ledger_id=w.LEDGER))
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _found(self, options: Mapping[str, str]) -> LedgerMetadata:
        """Return the ledger as others stored it; OPEN, with the fragments that the writer knows,
        unless the options name others.
        """
        fragments: Sequence[Fragment] = self._protocol.metadata.fragments
        if "fragments" in options:
            fragments = w.parse_fragments(options["fragments"])
        state = next(
            (ledger_state for ledger_state in LedgerState if ledger_state in options),
            LedgerState.OPEN,
        )
        last, length = int(options.get("last", "-1")), int(options.get("length", "0"))
        found = w.ledger(self._quorum, fragments, state, last, length)
        return replace(found, creation_token=OTHERS) if "recreated" in options else found

    def _show(self, action: e.AppendAction) -> str:  # noqa: C901, PLR0911 - a line for each
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
            case e.ProposeMembers(ensemble):
                return f"propose {','.join(ensemble)}"
            case e.StoreMetadata(metadata, expected):
                self._wanted = metadata
                return f"store {_show_ledger(metadata)} at version {expected}"
            case e.ReadMetadata():
                return "read the metadata"
            case e.DropChange():
                return "drop the change"
            case e.MembersChanged(fragment):
                left = ",".join(action.replaced) or "none"
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
