"""Principal of this client, as bookies say it: the owner of the ledgers that it creates. And its
right to recover a ledger.

Leaves mapping a certificate to a principal, and enforcing rights, to the bookies.

Invariants: a cluster whose bookies know no principals is asked nothing; at most BOOKIES_ASKED_MAX
bookies are asked; without an answer no ledger is created, because its creator could not use it.

Source: protocol rules 12.2, 12.4 and 12.6.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from bookie.wire.messages import ReadRights, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import PrincipalUnknownError, UnauthorizedError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_owner import NO_OWNER, is_owner
from metadata.registry.directory import BookieDirectory
from metadata.security.ledger_roles import LedgerRight

BOOKIES_ASKED_MAX: Final = 3
RECOVERY: Final = int(LedgerRight.FENCE | LedgerRight.RECOVERY_ADD)
"""Rights that a recovery needs at each bookie."""


class OwnPrincipal:
    """Principal of one client, which does not change while the client lives."""

    def __init__(self, directory: BookieDirectory, pool: BookiePool, timeout_s: float) -> None:
        self._directory = directory
        self._pool = pool
        self._timeout_s = timeout_s
        self._known: str | None = None

    async def owner_in(self, ensemble: tuple[BookieId, ...]) -> str:
        """Return the owner of a new ledger; empty if bookies know no principal of this client. The
        bookies of `ensemble` are asked first. Raises PrincipalUnknownError; UnauthorizedError if
        each bookie refuses this client.
        """
        if self._known is not None:
            return self._known
        failures: list[str] = []
        is_refused = True
        for bookie_id in islice(self._candidates(ensemble), BOOKIES_ASKED_MAX):
            try:
                await self._pool.ping(bookie_id, timeout_s=self._timeout_s)
            except BookieCallError as error:
                failures.append(str(error))
                is_refused &= error.status is Status.UNAUTHORIZED
                continue
            told = self._pool.principals.get(bookie_id, NO_OWNER)
            self._known = told if is_owner(told) else NO_OWNER
            return self._known
        if failures and is_refused:
            why = "; ".join(failures)
            raise UnauthorizedError(f"bookies refuse this client, and nothing was created: {why}")
        if failures:
            raise PrincipalUnknownError(
                "nothing was created: a new ledger names its owner, and none of "
                f"{len(failures)} bookies said who this client is (the last one: {failures[-1]}): "
                "correct this, and try again"
            )
        return NO_OWNER

    async def check_may_recover(self, metadata: LedgerMetadata, keys: LedgerKeys) -> None:
        """Raise UnauthorizedError if a bookie says that this client may not recover a ledger. The
        first step of a recovery is a change of the metadata, which ends the writer, and no bookie
        sees it. Nothing is known of a ledger without an owner, and without an answer.
        """
        if not metadata.owner:
            return
        ledger_id, request = metadata.ledger_id, ReadRights(metadata.ledger_id)
        self._pool.attach(ledger_id, keys.master_key)
        try:
            for bookie_id in metadata.last_fragment.ensemble[:BOOKIES_ASKED_MAX]:
                try:
                    timeout_s = self._timeout_s
                    reply = await self._pool.read_rights(bookie_id, request, timeout_s=timeout_s)
                except BookieCallError:
                    continue
                if RECOVERY & ~reply.rights:
                    who = self._pool.principals.get(bookie_id) or "a client without a principal"
                    raise UnauthorizedError(
                        f"{who} may not fence it, as bookie {bookie_id} says, and nothing was "
                        "changed: an administrator can give it the role with `quire grant add "
                        f"{who!r} recoverer ledger:{ledger_id}`",
                        ledger_id=ledger_id,
                    )
                return
        finally:
            self._pool.detach(ledger_id)

    def _candidates(self, ensemble: tuple[BookieId, ...]) -> Iterator[BookieId]:
        bookies = self._directory.bookies
        for bookie_id in dict.fromkeys((*ensemble, *bookies)):
            known = bookies.get(bookie_id)
            if known is not None and known.names_owners:
                yield bookie_id
