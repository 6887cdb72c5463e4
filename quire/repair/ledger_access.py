"""Keys of a ledger for repair, which does not know its password.

Leaves the requests to `ledger_client.bookies.ledger_access`.

Invariant: the key comes from a bookie that stores the ledger. A bookie keeps the first key that it
gets, so a ledger whose key is not known is not written, and is fenced without a key only.

Source: protocol rules 9.1 and 9.14; docs/repair.md, "Keys".
"""

from typing import Final

from ledger_client.bookies.ledger_access import read_master_key
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from metadata.ledgers.ledger_metadata import LedgerMetadata

ANSWER_S: Final = 5.0
"""Time for each bookie to answer, in seconds."""


async def keys_of(ledger: LedgerMetadata, pool: BookiePool) -> LedgerKeys | None:
    """Return the keys of a ledger; None if none of its bookies stores it. Raises
    QuorumTimeoutError, NotEnoughBookiesError and UnauthorizedError as `read_master_key`.
    """
    named = (b for fragment in reversed(ledger.fragments) for b in fragment.ensemble)
    holders = list(dict.fromkeys(named))
    key = await read_master_key(pool, ledger.ledger_id, holders, timeout_s=ANSWER_S)
    return None if key is None else LedgerKeys.with_master_key(ledger, key)
