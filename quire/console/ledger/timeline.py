"""What happened to a ledger, as far as its metadata and the records of repair say it. Pure.

Leaves reading them to `quire.console.pages.ledger_page`.

The metadata has no times for the beginnings of fragments, for recovery and for the close: these
events have their order only. A repair replaces bookies in a fragment, so that the fragment no
longer names those that it had at first.

Source: protocol rules 1.4, 1.5, 5.1, 7.1, 9.1, 9.9 and 11.6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.repair.claims import Claim
from metadata.repair.jobs import Job
from quire.operate.repair_summary import copied_text

FRAGMENTS_SHOWN_MAX: Final = 40
"""Maximum number of ensemble changes; the newest are shown."""
LOST_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Happened:
    """One event, in the order of events."""

    what: str
    time_ms: int | None = None
    """None if no record has its time; in milliseconds since 1970."""


def timeline(ledger: LedgerMetadata, job: Job | None, claim: Claim | None) -> list[Happened]:
    """Return the events, the oldest first."""
    return [
        Happened(f"created by {ledger.writer}", ledger.created_ms),
        *_changes(ledger.fragments),
        *_end(ledger),
        *_repair(job, claim),
    ]


def _changes(fragments: Sequence[Fragment]) -> list[Happened]:
    changes = list(enumerate(pairwise(fragments), 1))
    shown = changes[-FRAGMENTS_SHOWN_MAX:]
    found = [Happened(_change(index, before, after)) for index, (before, after) in shown]
    if len(shown) < len(changes):
        count = len(changes) - len(shown)
        found.insert(0, Happened(f"{count:,} older ensemble changes, which are not shown"))
    return found


def _change(index: int, before: Fragment, after: Fragment) -> str:
    left = [each for each in before.ensemble if each not in after.ensemble]
    came = [each for each in after.ensemble if each not in before.ensemble]
    text = f"fragment {index} begins at entry {after.first_entry_id:,}"
    if left and came:
        return f"{text}: {', '.join(came)} in place of {', '.join(left)}"
    if left:
        return f"{text}: {', '.join(left)} left"
    return f"{text}: {', '.join(came)} joined" if came else f"{text}: the same bookies"


def _end(ledger: LedgerMetadata) -> list[Happened]:
    if ledger.state is LedgerState.IN_RECOVERY:
        return [Happened("recovery began: the writer is fenced, and the end is being found")]
    if ledger.state is LedgerState.OPEN:
        return []
    assert ledger.last_entry_id is not None, "a closed ledger has an end"
    end = ledger.last_entry_id
    closed = "closed without entries" if end < 0 else f"closed at entry {end:,}"
    found = [Happened(f"{closed}, by its writer or by a recovery")]
    if ledger.given_up:
        first = ledger.given_up[0].first_entry_id
        found.append(Happened(f"an unclean recovery gave up the entries from {first:,} on"))
    lost = sorted(ledger.lost, key=lambda each: each.accepted_ms)[-LOST_SHOWN_MAX:]
    for each in lost:
        last = "on" if each.is_after_the_end else f"to {each.last_entry_id:,}"
        text = f"the loss of the entries from {each.first_entry_id:,} {last} was accepted"
        found.append(Happened(text, each.accepted_ms))
    return found


def _repair(job: Job | None, claim: Claim | None) -> list[Happened]:
    found = []
    if job is not None:
        found.append(Happened(f"a repair is needed: {'; '.join(job.reasons)}", job.since_ms))
    if claim is not None:
        copied = f"{copied_text(claim)}" + (f" to {claim.target}" if claim.target else "")
        text = f"worker {claim.worker_id} repairs it: {copied}"
        found.append(Happened(text, claim.since_ms))
    return found
