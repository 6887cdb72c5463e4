"""Entries of a ledger that each of its bookies lists.

Leaves what follows from the lists to `parts`.

Invariants: each bookie is asked at the same time, for at most PAGES_MAX pages of RANGES_PER_PAGE
ranges, each for at most ASK_S; a bookie without a complete answer is not checked beyond what it
said.

Source: protocol rules 3.2 and 9.4.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, BookieId, LedgerId
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.registry.registration import BookieRegistration
from quire.console.admin_servers import AdminServers
from quire.console.ledger.parts import Held
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, AdminNotFoundError, AdminSilentError
from quire.operate.fields import Json

ASK_S: Final = 1.0
PAGES_MAX: Final = 2
RANGES_PER_PAGE: Final = 1_000
BOOKIES_MAX: Final = 60
"""Maximum number of bookies that are asked for one page; those of the newest fragments are first.
"""
UNREADABLE: Final = "its list of entries cannot be read: it may have another release"
DOWN: Final = Held(problem="it is down", is_up=False)
NO_ADDRESS: Final = Held(problem="it has no admin address")
COMPLETE: Final = Held(through=ENTRY_ID_MAX)
TOO_MANY: Final = Held(problem=f"more than {BOOKIES_MAX} bookies hold this ledger")


async def ask_bookies(
    ledger: LedgerMetadata,
    up: Mapping[BookieId, BookieRegistration],
    servers: AdminServers,
) -> dict[BookieId, Held]:
    """Return what each bookie that the ledger's fragments name lists."""
    newest_first = reversed((*ledger.given_up, *ledger.fragments))
    named = dict.fromkeys(b for each in newest_first for b in (*each.ensemble, *each.incoming))
    held = {each: DOWN for each in named if each not in up}
    to_ask = [each for each in named if each in up]
    held |= dict.fromkeys(to_ask[BOOKIES_MAX:], TOO_MANY)
    answers = [_ask(ledger.ledger_id, up[each], servers) for each in to_ask[:BOOKIES_MAX]]
    return held | dict(zip(to_ask, await asyncio.gather(*answers), strict=False))


async def _ask(ledger_id: LedgerId, bookie: BookieRegistration, servers: AdminServers) -> Held:
    if not bookie.admin_url:
        return NO_ADDRESS
    ranges: list[Range] = []
    try:
        for _ in range(PAGES_MAX):
            first = ranges[-1][1] + 1 if ranges else 0
            page = f"first={first}&limit={RANGES_PER_PAGE}"
            url = f"{bookie.admin_url}/api/v1/ledgers/{ledger_id}/entries?{page}"
            status, found, is_complete = _read(await servers.get_json(url, ASK_S))
            ranges += found
            if status != "ok":
                problem = f"it answered {status}: it may have lost stored data"
                return Held(ranges, NO_ENTRY, problem)
            if is_complete:
                return Held(ranges, ENTRY_ID_MAX)
            if not found:
                break
    except AdminNotFoundError:
        return COMPLETE if not ranges else Held(problem="its copies were removed meanwhile")
    except AdminSilentError:
        return _partial(ranges, f"it did not answer within {ASK_S:.0f} s")
    except (AdminApiError, SecurityError) as error:
        return _partial(ranges, str(error))
    return _partial(ranges, f"its list has more than {PAGES_MAX * RANGES_PER_PAGE:,} ranges")


def _partial(ranges: Sequence[Range], problem: str) -> Held:
    return Held(ranges, ranges[-1][1] if ranges else NO_ENTRY, problem)


def _read(answer: Json) -> tuple[str, list[Range], bool]:
    """Return the status, the ranges and whether they are all. Raises AdminApiError."""
    match answer:
        case {"status": str() as status, "ranges": list() as pairs, "complete": bool() as complete}:
            ranges = [_range(each) for each in pairs]
            if all(before[1] < after[0] for before, after in pairwise(ranges)):
                return status, ranges, complete
        case _:
            pass
    raise AdminApiError(UNREADABLE)


def _range(pair: Json) -> Range:
    match pair:
        case [int() as first, int() as last] if 0 <= first <= last <= ENTRY_ID_MAX:
            return first, last
        case _:
            raise AdminApiError(UNREADABLE)
