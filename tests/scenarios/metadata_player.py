"""Player of transcripts of changes of one ledger's metadata, and of its stored form.

Set-up: `quorum E/WQ/AQ[/S]`, `fragments 0:a,b,c`, `custom NAME=VALUE ...`. The ledger is open.

Events:
    show                                    every field, after it was stored and read
    ensemble-change 5 a,b,d                 the transitions of `LedgerMetadata`: an accepted one is
    recovery-begun                            the value from now on, a refused one has no effect
    closed 9 100                            at this last entry and length
    recovered 9 100 [5:a,b,d;7:a,b,e]       the same, and the fragments that recovery changed
    repaired 0 0:a,b,d [incoming=e]         the fragment at an index
    lost 3..5 9..9 at=1000                  accepts the loss of these entries
    decode NAME=VALUE ...                   reads the stored form with other fields: `version`,
                                              `state`, `quorum`, `fragments`, `last`, `length`
                                              (`nil` for none), `token-bytes`
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from metadata.errors import InvalidTransitionError, MetadataFormatError
from metadata.ids import EntryId, UpdateToken
from metadata.ledgers.codec import (
    FORMAT_VERSION,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.msgpack_fields import Packed, array_of, pack, unpack_versioned
from tests.scenarios import words as w

CREATED_MS: Final = 1_700_000_000_000
CREATION_TOKEN: Final = UpdateToken(bytes(range(16)))
"""Different from the token of every change, so that both can be distinguished."""
FIELD_COUNT: Final = 18
VERSION, STATE, QUORUM, BOOKIES, FRAGMENTS, TOKEN, LAST, LENGTH = 0, 2, 3, 4, 5, 9, 11, 12
"""Places of the fields that `decode` changes in the stored form: see `metadata.ledgers.codec`."""


class MetadataPlayer:
    """One ledger's metadata, as last accepted."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        quorum, fragments = w.parse_quorum(setup["quorum"]), w.parse_fragments(setup["fragments"])
        custom = w.parse_options(setup.get("custom", "").split())
        self._metadata = replace(
            w.ledger(quorum, fragments, LedgerState.OPEN),
            created_ms=CREATED_MS,
            creation_token=CREATION_TOKEN,
            update_token=CREATION_TOKEN,
            custom=custom,
        )

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["show"]:
                return _show_all(_stored_and_read(self._metadata))
            case ["decode", *rest]:
                return [_decode(self._metadata, w.parse_options(rest))]
            case _:
                return [self._change(words)]

    def _change(self, words: Sequence[str]) -> str:
        try:
            changed = self._changed(words)
        except InvalidTransitionError as error:
            return f"refused: {error.why}"
        self._metadata = _stored_and_read(changed)
        return _show(self._metadata)

    def _changed(self, words: Sequence[str]) -> LedgerMetadata:
        now = self._metadata
        match words:
            case ["ensemble-change", first, ensemble]:
                bookies = w.parse_bookies(ensemble)
                return now.with_ensemble_change(EntryId(int(first)), bookies, w.TOKEN)
            case ["recovery-begun"]:
                return now.with_recovery_begun(w.TOKEN)
            case ["closed", last, length]:
                return now.with_closed(EntryId(int(last)), int(length), w.TOKEN)
            case ["recovered", last, length, *rest]:
                fragments = w.parse_fragments(rest[0]) if rest else ()
                return now.with_recovered(fragments, EntryId(int(last)), int(length), w.TOKEN)
            case ["lost", *ranges, at]:
                found = [tuple(map(int, range_.split(".."))) for range_ in ranges]
                pairs = [(first, last) for first, last in found]
                return now.with_lost(pairs, int(at.removeprefix("at=")), w.TOKEN)
            case ["repaired", index, fragment, *rest]:
                (swapped,) = w.parse_fragments(fragment)
                incoming = w.parse_bookies(w.parse_options(rest).get("incoming", ""))
                changed = replace(swapped, incoming=incoming)
                return now.with_fragment(int(index), changed, w.TOKEN)
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")


def _stored_and_read(metadata: LedgerMetadata) -> LedgerMetadata:
    read = decode_ledger_metadata(encode_ledger_metadata(metadata))
    assert read == metadata, "the stored form holds every field"
    return read


def _decode(metadata: LedgerMetadata, options: Mapping[str, str]) -> str:
    stored = encode_ledger_metadata(metadata)
    fields = unpack_versioned("test", stored, FORMAT_VERSION, FIELD_COUNT)
    for name, value in options.items():
        _put(fields, name, value)
    try:
        return f"read {_show(decode_ledger_metadata(pack('test', fields)))}"
    except MetadataFormatError as error:
        return f"refused: {error.why}"


def _put(fields: list[Packed], name: str, value: str) -> None:
    """Change a field of the stored form."""
    match name:
        case "version":
            fields[VERSION] = int(value)
        case "state":
            fields[STATE] = value
        case "quorum":
            array_of(fields[QUORUM])[1:4] = [int(part) for part in value.split("/")]
        case "fragments":
            fragments = w.parse_fragments(value) if value else ()
            named = [bookie_id for fragment in fragments for bookie_id in fragment.ensemble]
            table = sorted(set(named))
            fields[BOOKIES] = list[Packed](table)
            fields[FRAGMENTS] = [
                [f.first_entry_id, [table.index(bookie_id) for bookie_id in f.ensemble]]
                for f in fragments
            ]
        case "last":
            fields[LAST] = None if value == "nil" else int(value)
        case "length":
            fields[LENGTH] = None if value == "nil" else int(value)
        case "token-bytes":
            fields[TOKEN] = bytes(int(value))
        case _:
            raise ValueError(f"unknown field: {name}")


def _show(metadata: LedgerMetadata) -> str:
    fragments = ";".join(map(_show_fragment, metadata.fragments))
    end = ""
    if metadata.last_entry_id is not None:
        end = f" last={metadata.last_entry_id} length={metadata.length}"
    lost = ",".join(
        f"{lost_range.first_entry_id}..{lost_range.last_entry_id}@{lost_range.accepted_ms}"
        for lost_range in metadata.lost
    )
    return f"{metadata.state}{end} fragments={fragments}{f' lost={lost}' if lost else ''}"


def _show_fragment(fragment: Fragment) -> str:
    incoming = f"+{','.join(fragment.incoming)}" if fragment.incoming else ""
    return w.show_fragments([fragment]) + incoming


def _show_all(metadata: LedgerMetadata) -> list[str]:
    quorum = metadata.quorum
    sizes = f"{quorum.ensemble_size}/{quorum.write_quorum}/{quorum.ack_quorum}"
    custom = [f"{name}={value!r}" for name, value in metadata.custom.items()]
    return [
        f"ledger {metadata.ledger_id}",
        _show(metadata),
        f"quorum mode={quorum.mode} {sizes}/{quorum.stripe_entries}",
        f"digest {metadata.digest}",
        f"created {metadata.created_ms} token={metadata.creation_token.hex()}",
        f"writer {metadata.writer}",
        f"updated token={metadata.update_token.hex()}",
        f"custom {' '.join(custom)}",
    ]
