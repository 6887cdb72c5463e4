"""Operations of a client on complete ledgers: create, find, list, recover, delete.

Leaves the resulting handles to `ledger_client.client_session`, and the rules of recovery to
`recoverer`.

Source: api design, "Client"; protocol rules 1.1-1.3, 7 and 10.1.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final

from bookie.wire.messages import ReadLac, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.placement import Shortage
from ledger_client.client_services import ClientServices
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.keys import Encryption, NamedKey
from ledger_client.errors import (
    LedgerError,
    LedgerExistsError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    Outcome,
    RecoveryUndecidedError,
    UnauthorizedError,
    WriterAliveError,
)
from ledger_client.info import LedgerInfo
from ledger_client.metadata_failures import metadata_call, translate
from ledger_client.observability import LedgerRecovered, LedgerUnreadable
from ledger_client.replication import Quorum
from metadata.errors import MetadataError, MetadataFormatError, NodeExistsError, NodeNotFoundError
from metadata.ids import UPDATE_TOKEN_BYTES, EntryId, LedgerId, UpdateToken, Version, is_ledger_id
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.ledgers.payload_encryption import PayloadEncryption
from metadata.paths import LEDGER_IDS, chosen_id_path, client_path, ledger_path
from metadata.store.interface import Operation, find

ID_IS_USED_UP: Final = (
    "a ledger with this id existed and was deleted, and a chosen id is never used again: choose "
    "another id, or let the client choose"
)
ID_IS_ALLOCATED: Final = (
    "the cluster has allocated this id to a client, so a ledger may have had it, and no id is used "
    "twice: choose a much higher id, or let the client choose"
)
ID_ATTEMPTS_MAX: Final = 100
"""Maximum number of allocated ids to skip because users chose them for their ledgers."""
PASSWORD_BYTES_MIN: Final = 16
"""Least length of a new ledger's password: a bookie could guess a shorter one from the key that it
gets, and with it make MACs.
"""
PASSWORD_ASKED_MAX: Final = 3
PASSWORD_TIMEOUT_S: Final = 1.0

Found = tuple[LedgerMetadata, Version, LedgerKeys]


@dataclass(frozen=True, slots=True)
class NewLedger:
    """Properties of a ledger to create."""

    ledger_id: LedgerId | None
    quorum: QuorumSpec
    digest: DigestType
    password: bytes
    custom: Mapping[str, str | bytes]
    key: NamedKey | PayloadEncryption | None = None
    """Key of the payloads, or, if they are ciphertext already, how they were encrypted."""

    @classmethod
    def of(
        cls,
        quorum: Quorum,
        ledger_id: int | None,
        digest: str,
        password: bytes,
        metadata: Mapping[str, str | bytes] | None,
        encryption: Encryption | PayloadEncryption | None = None,
    ) -> "NewLedger":
        """Check the user's arguments. Raises ValueError, TypeError; LedgerError for in-sync mode;
        EncryptionKeyError.
        """
        if ledger_id is not None and not is_ledger_id(ledger_id):
            raise ValueError(f"{ledger_id} is not a ledger id: use 0 to 2^63 - 1")
        if 0 < len(password) < PASSWORD_BYTES_MIN:
            raise ValueError(
                f"the password has {len(password)} bytes, and could be guessed: use at least"
                f" {PASSWORD_BYTES_MIN} random ones, such as secrets.token_bytes(32), or none"
            )
        custom = dict(metadata or {})
        for key, value in custom.items():
            if not isinstance(key, str) or not isinstance(value, str | bytes):
                raise TypeError(f"metadata must map text to text or bytes: {key!r} does not")
        return cls(
            None if ledger_id is None else LedgerId(ledger_id),
            quorum.spec,
            DigestType(digest),
            bytes(password),
            MappingProxyType(custom),
            encryption.current_key() if isinstance(encryption, Encryption) else encryption,
        )


class LedgerCalls:
    """Operations of one client; stateless."""

    def __init__(self, services: ClientServices) -> None:
        self._services = services

    async def create(self, wanted: NewLedger, timeout_s: float) -> Found:
        """Store a new ledger's metadata. Raises NotEnoughBookiesError, LedgerExistsError,
        PrincipalUnknownError and the errors of the metadata service.
        """
        deadline_s = self._services.config.append_deadline_s
        lag_s = wanted.quorum.replica_lag_time_max_ms / 1000
        if wanted.quorum.is_in_sync and lag_s >= deadline_s:
            raise ValueError(
                f"replica_lag_time_max ({lag_s} s) must be below append_deadline_s ({deadline_s}): "
                "a lagging member must leave before an append that waits for it fails"
            )
        async with self._metadata("create_ledger", timeout_s, wanted.ledger_id, unknown=True):
            for _ in range(ID_ATTEMPTS_MAX):
                ledger_id = wanted.ledger_id
                if ledger_id is None:
                    ledger_id = await self._services.ledger_ids.allocate()
                metadata = await self._new_metadata(ledger_id, wanted)
                try:
                    is_chosen = wanted.ledger_id is not None
                    version = await self._services.ledgers.create(metadata, is_chosen=is_chosen)
                except NodeExistsError as error:
                    if wanted.ledger_id is None:
                        if error.path == ledger_path(ledger_id):  # not chosen by another client
                            self._services.ledger_ids.leave_block()
                        continue
                    why = {chosen_id_path(ledger_id): ID_IS_USED_UP, LEDGER_IDS: ID_IS_ALLOCATED}
                    if error.path in why:
                        raise LedgerExistsError(why[error.path], ledger_id=ledger_id) from error
                    raise
                else:
                    return metadata, version, LedgerKeys.of(metadata, wanted.password)
        raise LedgerError(f"no free ledger id was found in {ID_ATTEMPTS_MAX} attempts: try again")

    async def find(self, ledger_id: LedgerId, password: bytes, timeout_s: float) -> Found:
        """Read a ledger's metadata. Raises LedgerNotFoundError and the errors of the metadata
        service.
        """
        async with self._metadata("reading a ledger's metadata", timeout_s, ledger_id):
            metadata, version = await self._services.ledgers.get(ledger_id, fresh=True)
        return metadata, version, LedgerKeys.of(metadata, password)

    async def find_closed(
        self, ledger_id: LedgerId, password: bytes, timeout_s: float
    ) -> Found | None:
        """Read a ledger's metadata from any server of the metadata service, without waiting for the
        newest; None unless the ledger is there and closed.
        """
        async with self._metadata("reading a ledger's metadata", timeout_s, ledger_id):
            try:
                metadata, version = await self._services.ledgers.get(ledger_id)
            except NodeNotFoundError:
                return None
        if metadata.state is not LedgerState.CLOSED:
            return None
        return metadata, version, LedgerKeys.of(metadata, password)

    async def check_password(self, metadata: LedgerMetadata, keys: LedgerKeys, end: float) -> None:
        """Check, until a loop time, that bookies accept the ledger's key. Raises UnauthorizedError
        if a bookie that knows the ledger refuses it; does nothing if no bookie can be reached.
        """
        loop, pool, ledger_id = asyncio.get_running_loop(), self._services.pool, metadata.ledger_id
        ends = (metadata.fragments[-1], metadata.fragments[0])
        holders = dict.fromkeys(bookie for end in ends for bookie in end.ensemble)
        longest_s = min(PASSWORD_TIMEOUT_S, self._services.config.read_timeout_s)
        pool.attach(ledger_id, keys.master_key)
        try:
            for bookie_id in islice(holders, PASSWORD_ASKED_MAX):
                status, timeout_s = Status.UNKNOWN, max(0.0, min(longest_s, end - loop.time()))
                try:
                    request = ReadLac(ledger_id, fence=False)
                    status = (await pool.read_lac(bookie_id, request, timeout_s=timeout_s)).status
                except BookieCallError as error:
                    status = error.status or Status.UNKNOWN
                if status is Status.UNAUTHORIZED:
                    text = f"bookie {bookie_id} refused the password: open it with the correct one"
                    raise pool.refusals.explained(UnauthorizedError(text, ledger_id=ledger_id))
                if status is Status.OK:
                    return
        finally:
            pool.detach(ledger_id)

    async def recover(self, ledger_id: LedgerId, password: bytes, timeout_s: float) -> LedgerInfo:
        """Fence, recover and close a ledger (rules 7.*), within `timeout_s` in all; return its new
        info.
        """
        from ledger_client.recovery.recoverer import Recoverer  # noqa: PLC0415 - `client_session`

        services, loop = self._services, asyncio.get_running_loop()
        ends_s = loop.time() + timeout_s
        metadata, version, keys = await self.find(ledger_id, password, timeout_s)
        if metadata.state is LedgerState.CLOSED:
            return LedgerInfo.of(metadata)
        await services.principal.check_may_recover(metadata, keys)
        recoverer = Recoverer(
            metadata=metadata,
            version=version,
            keys=keys,
            pool=services.pool,
            placement=services.placement,
            ledgers=services.ledgers,
            config=services.config,
            rng=services.rng,
        )
        try:
            closed, _ = await recoverer.recover(timeout_s=max(0.0, ends_s - loop.time()))
        except MetadataError as error:
            raise translate(error, ledger_id) from error
        assert closed.last_entry_id is not None, "recovery ends in a closed ledger"
        services.observer.emit(LedgerRecovered(ledger_id, closed.last_entry_id))
        return LedgerInfo.of(closed)

    async def recover_unclean(
        self,
        ledger_id: LedgerId,
        password: bytes,
        timeout_s: float,
        *,
        gives_up_all: bool = False,
        even_if_writer_lives: bool = False,
    ) -> LedgerInfo:
        """Recover a ledger; if that fails, drop entries that no replica can return (rule 11.6). The
        members that did not answer are fenced in the background.
        """
        from ledger_client.recovery.unclean_recovery import UncleanRecovery  # noqa: PLC0415

        services = self._services
        metadata, _, keys = await self.find(ledger_id, password, timeout_s)
        if not metadata.quorum.is_in_sync:
            raise LedgerError(
                "only a ledger in in-sync mode can be recovered uncleanly: use recover_ledger()",
                ledger_id=ledger_id,
            )
        if not even_if_writer_lives:
            await self._require_no_writer(metadata, timeout_s)
        try:
            return await self.recover(ledger_id, password, timeout_s)
        except RecoveryUndecidedError as error:
            is_empty = error.is_last_fragment_empty
            if error.entry_id is not None and not is_empty:
                raise  # a member fenced, and holds more than would be kept
            recovery = UncleanRecovery(
                pool=services.pool,
                ledgers=services.ledgers,
                keys=keys,
                config=services.config,
                rng=services.rng,
                draw_token=services.for_writers.token,
                gives_up_all=gives_up_all,
                is_last_fragment_empty=is_empty,
            )
        async with self._metadata("recover_ledger_unclean", timeout_s, ledger_id, unknown=True):
            closed = await recovery.close()
        if closed.given_up:
            services.late_fences.start(keys, closed.given_up[-1].ensemble)
        assert closed.last_entry_id is not None, "it ends in a closed ledger"
        services.observer.emit(LedgerRecovered(ledger_id, closed.last_entry_id))
        return LedgerInfo.of(closed)

    async def _require_no_writer(self, metadata: LedgerMetadata, timeout_s: float) -> None:
        """Raise WriterAliveError for an open ledger whose writer is registered. The writer of a
        ledger in recovery has ended, or ends once it sees that (rule 11.7).
        """
        ledger_id, writer = metadata.ledger_id, metadata.writer
        if metadata.state is not LedgerState.OPEN:
            return
        async with self._metadata("checking the writer's registration", timeout_s, ledger_id):
            if await find(self._services.store, client_path(writer)) is None:
                return
        raise WriterAliveError(
            f"its writer, {writer}, is alive, and may reach members that do not answer here: its "
            "acknowledged entries would be lost. Stop the writer, or allow this with "
            "even_if_writer_lives (`--even-if-writer-lives`)",
            ledger_id=ledger_id,
        )

    async def delete(
        self, ledger_id: LedgerId, timeout_s: float, *, guard: Sequence[Operation] = ()
    ) -> None:
        """Remove a ledger's metadata; bookies remove its entries later. Raises
        LedgerNotFoundError; MetadataConflictError if an operation of the guard fails.
        """
        async with self._metadata("delete_ledger", timeout_s, ledger_id, unknown=True):
            was_there = await self._services.ledgers.delete(ledger_id, guard=guard)
        if not was_there:
            text = "it does not exist: it was never created, or was deleted"
            raise LedgerNotFoundError(text, ledger_id=ledger_id)

    # Internals

    def _metadata(
        self,
        what: str,
        timeout_s: float,
        ledger_id: LedgerId | None = None,
        *,
        unknown: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        address = self._services.store.address
        outcome: Outcome = "unknown" if unknown else "not_written"
        return metadata_call(what, address, timeout_s, ledger_id=ledger_id, outcome=outcome)

    async def _new_metadata(self, ledger_id: LedgerId, wanted: NewLedger) -> LedgerMetadata:
        services = self._services
        ensemble = services.placement.new_ensemble(wanted.quorum)
        if isinstance(ensemble, Shortage):
            await services.placement.refresh()
            ensemble = services.placement.new_ensemble(wanted.quorum)
        if isinstance(ensemble, Shortage):
            raise not_enough_bookies(ensemble, ledger_id)
        owner = await services.principal.owner_in(ensemble)
        key = wanted.key
        if isinstance(key, NamedKey):
            token = key.draw_token()
            encryption: PayloadEncryption | None = key.encryption_of(token)
        else:
            token, encryption = UpdateToken(services.rng.randbytes(UPDATE_TOKEN_BYTES)), key
        return LedgerMetadata(
            ledger_id=ledger_id,
            state=LedgerState.OPEN,
            quorum=wanted.quorum,
            fragments=(Fragment(EntryId(0), ensemble),),
            digest=wanted.digest,
            created_ms=services.wall_clock_ms(),
            creation_token=token,
            update_token=token,
            writer=services.registration.client_id,
            custom=wanted.custom,
            encryption=encryption,
            owner=owner,
        )


def not_enough_bookies(short: Shortage, ledger_id: LedgerId) -> NotEnoughBookiesError:
    """Return the error that says what is missing."""
    reasons = ", ".join(f"{bookie}: {why}" for bookie, why in islice(short.excluded.items(), 10))
    text = (
        f"{short.needed} writable bookies are needed and {short.seen} can be used"
        + (f" ({reasons})" if reasons else "")
        + short.why
        + ": start more bookies, or use a smaller ensemble; `quire cluster health` shows why a "
        "bookie is read-only"
    )
    return NotEnoughBookiesError(
        text,
        needed=short.needed,
        seen=short.seen,
        excluded={str(bookie): why for bookie, why in short.excluded.items()},
        ledger_id=ledger_id,
        outcome="not_written",
    )


INFO_READS_AT_ONCE: Final = 256


class LedgerLists:
    """Lists of the ledgers of a cluster; stateless.

    Invariants: a list is read in steps, so it holds few ledgers in memory; a ledger whose record
    this release cannot read ends no list: it is left out, and an event names it. A named ledger is
    reported missing only after a fresh read: a server that lags may not have it yet.
    """

    def __init__(self, services: ClientServices) -> None:
        self._services = services

    async def all(self, start: LedgerId, timeout_s: float) -> AsyncIterator[list[LedgerInfo]]:
        """Stream every ledger from `start` on, in order of ids, in lists, without those whose
        records cannot be read; `timeout_s` limits each step. Raises MetadataUnavailableError.
        """
        address = self._services.store.address
        ids = self._services.ledgers.list_ledger_ids(start)
        is_last = False
        while not is_last:
            chunk: list[LedgerId] = []
            async with metadata_call("listing ledgers", address, timeout_s):
                while len(chunk) < INFO_READS_AT_ONCE and not is_last:
                    ledger_id = await anext(ids, None)
                    if ledger_id is None:
                        is_last = True
                    else:
                        chunk.append(ledger_id)
                infos = await asyncio.gather(*[self._readable(id_) for id_ in chunk])
            yield [info for info in infos if info is not None]

    async def named(
        self, ledger_ids: Sequence[LedgerId], timeout_s: float
    ) -> AsyncIterator[list[LedgerInfo | None]]:
        """Stream these ledgers in the given order, in lists, with None for one that does not exist;
        `timeout_s` limits each step. Raises MetadataConflictError for a record that cannot be read,
        MetadataUnavailableError.
        """
        address = self._services.store.address
        for start in range(0, len(ledger_ids), INFO_READS_AT_ONCE):
            chunk = ledger_ids[start : start + INFO_READS_AT_ONCE]
            async with metadata_call("reading ledgers", address, timeout_s):
                infos = await asyncio.gather(*[self._found(ledger_id) for ledger_id in chunk])
            yield infos

    async def _found(self, ledger_id: LedgerId) -> LedgerInfo | None:
        """Return a ledger; None only if a fresh read does not find it either."""
        return await self._info(ledger_id) or await self._info(ledger_id, fresh=True)

    async def _readable(self, ledger_id: LedgerId) -> LedgerInfo | None:
        try:
            return await self._info(ledger_id)
        except MetadataFormatError as error:
            self._services.observer.emit(LedgerUnreadable(ledger_id, error.why))
            return None

    async def _info(self, ledger_id: LedgerId, *, fresh: bool = False) -> LedgerInfo | None:
        try:
            metadata, _ = await self._services.ledgers.get(ledger_id, fresh=fresh)
        except NodeNotFoundError:  # deleted since it was listed
            return None
        return LedgerInfo.of(metadata)
