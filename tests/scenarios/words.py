"""Parser and formatter of values that transcripts of several protocols share.

Leaves the events and actions themselves to each protocol's player.
"""

from collections.abc import Mapping, Sequence

from bookie.wire.messages import Status
from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    STRIPE_ENTRIES_DEFAULT,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)

LEDGER = LedgerId(7)
TOKEN = UpdateToken(bytes(16))


def parse_quorum(text: str) -> QuorumSpec:
    """Read `E/WQ/AQ` or `E/WQ/AQ/S`."""
    ensemble, write, ack, *stripe = (int(part) for part in text.split("/"))
    return QuorumSpec(ensemble, write, ack, stripe[0] if stripe else STRIPE_ENTRIES_DEFAULT)


def parse_quorum_of(setup: Mapping[str, str]) -> QuorumSpec:
    """Read the set-up line `quorum E/WQ/AQ[/S]`, or `in_sync E min N`."""
    if "in_sync" not in setup:
        return parse_quorum(setup["quorum"])
    size, _min, least = setup["in_sync"].split()
    members = int(size)
    return QuorumSpec(members, members, members, mode=QuorumMode.IN_SYNC, min_in_sync=int(least))


def parse_bookies(text: str) -> tuple[BookieId, ...]:
    """Read `a,b,c`."""
    return tuple(BookieId(name) for name in text.split(",") if name)


def parse_fragments(text: str) -> tuple[Fragment, ...]:
    """Read `0:a,b,c;5:a,b,d`."""
    fragments = []
    for part in text.split(";"):
        first, _colon, bookies = part.partition(":")
        fragments.append(Fragment(EntryId(int(first)), parse_bookies(bookies)))
    return tuple(fragments)


def show_fragments(fragments: Sequence[Fragment]) -> str:
    """Write what `parse_fragments` reads."""
    return ";".join(f"{f.first_entry_id}:{','.join(f.ensemble)}" for f in fragments)


def parse_status(text: str) -> Status:
    """Read a status by its name in lower case."""
    return Status[text.upper()]


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Read `name=value` words; a word without `=` is a name with an empty value."""
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def parse_reasons(text: str) -> dict[BookieId, str]:
    """Read `a:timeout,b:refused`."""
    pairs = [part.partition(":") for part in text.split(",") if part]
    return {BookieId(name): reason for name, _colon, reason in pairs}


def show_reasons(reasons: Mapping[BookieId, str]) -> str:
    """Write what `parse_reasons` reads."""
    return ",".join(f"{name}:{reason.replace(' ', '_')}" for name, reason in reasons.items())


def ledger(
    quorum: QuorumSpec,
    fragments: Sequence[Fragment],
    state: LedgerState,
    last_entry_id: int = -1,
    length: int = 0,
) -> LedgerMetadata:
    """Return a ledger's metadata; last entry and length count only when closed."""
    is_closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ledger_id=LEDGER,
        state=state,
        quorum=quorum,
        fragments=tuple(fragments),
        digest=DigestType.CRC32C,
        created_ms=0,
        creation_token=TOKEN,
        update_token=TOKEN,
        writer=ClientId("writer"),
        last_entry_id=EntryId(last_entry_id) if is_closed else None,
        length=length if is_closed else None,
    )
