"""Strategies of valid ledger metadata for property tests.

Leaves the properties to the tests.
"""

from types import MappingProxyType

from hypothesis import strategies as st

from metadata.ids import ENTRY_ID_MAX, BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.ledgers.lost_entries import with_ranges
from metadata.ledgers.payload_encryption import (
    KEY_CHECK_BYTES,
    KEY_ID_CHARACTERS_MAX,
    PayloadEncryption,
)

_FULL = 2**63 - 1

tokens = st.binary(min_size=16, max_size=16).map(UpdateToken)
bookie_ids = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True).map(BookieId)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
custom_metadata = st.dictionaries(texts, st.one_of(texts, st.binary(max_size=30)), max_size=4).map(
    MappingProxyType
)


@st.composite
def quorums(draw: st.DrawFn) -> QuorumSpec:
    """Draw E >= WQ >= AQ >= 1, all equal in in-sync mode."""
    mode = draw(st.sampled_from(QuorumMode))
    ack, write, ensemble = sorted(draw(st.lists(st.integers(1, 7), min_size=3, max_size=3)))
    if mode is QuorumMode.IN_SYNC:
        ack = write = ensemble
    return QuorumSpec(
        ensemble,
        write,
        ack,
        draw(st.integers(1, 1 << 20)),
        mode,
        draw(st.integers(1, ensemble)),
        draw(st.integers(1, 10**9)),
    )


owners = st.sampled_from(("", "User:alice", "User:CN=bob,O=example"))
encryptions = st.builds(
    PayloadEncryption,
    key_id=st.text(
        st.characters(min_codepoint=33, max_codepoint=126),
        min_size=1,
        max_size=KEY_ID_CHARACTERS_MAX,
    ),
    key_token=tokens,
    key_check=st.binary(min_size=KEY_CHECK_BYTES, max_size=KEY_CHECK_BYTES),
)


@st.composite
def fragment_lists(draw: st.DrawFn, quorum: QuorumSpec) -> tuple[Fragment, ...]:
    """Draw fragments over a small pool of bookies, so that the table of ids is shared."""
    size = quorum.ensemble_size
    pool = draw(st.lists(bookie_ids, min_size=size + 2, max_size=size + 4, unique=True))
    later = draw(st.lists(st.integers(1, 2**62), max_size=5, unique=True))
    fragments = []
    for first in [0, *sorted(later)]:
        members = draw(st.permutations(pool))
        stay = draw(st.integers(1, size)) if quorum.is_in_sync else size
        incoming = draw(st.integers(0, len(pool) - size))
        fragments.append(
            Fragment(EntryId(first), tuple(members[:stay]), tuple(members[size : size + incoming]))
        )
    return tuple(fragments)


@st.composite
def ledger_metadata(draw: st.DrawFn) -> LedgerMetadata:
    """Draw any valid ledger metadata."""
    quorum = draw(quorums())
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    fragments = draw(fragment_lists(quorum))
    given_up: tuple[Fragment, ...] = ()
    last_entry_id = EntryId(draw(st.integers(-1, 2**63 - 2))) if closed else None
    if closed and len(fragments) > 1 and draw(st.booleans()):
        stay = draw(st.integers(1, len(fragments) - 1))
        fragments, given_up = fragments[:stay], fragments[stay:]
        last_entry_id = EntryId(given_up[0].first_entry_id - 1)
    end = -1 if last_entry_id is None else min(last_entry_id, ENTRY_ID_MAX - 1)
    bounds = sorted(draw(st.sets(st.integers(0, end)))) if end >= 0 else []
    pairs = zip(bounds[::2], bounds[1::2], strict=False)
    lost = with_ranges((), list(pairs), draw(st.integers(0, 2**50)))
    return LedgerMetadata(
        ledger_id=LedgerId(draw(st.integers(0, _FULL))),
        state=state,
        quorum=quorum,
        fragments=fragments,
        given_up=given_up,
        lost=lost,
        encryption=draw(st.none() | encryptions),
        owner=draw(owners),
        digest=draw(st.sampled_from(DigestType)),
        created_ms=draw(st.integers(0, 2**50)),
        creation_token=draw(tokens),
        update_token=draw(tokens),
        writer=ClientId(draw(texts)),
        last_entry_id=last_entry_id,
        length=draw(st.integers(0, _FULL)) if closed else None,
        custom=draw(custom_metadata),
    )
