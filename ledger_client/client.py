"""Client for users: opens ledgers for writing and reading, recovers, lists and deletes ledgers.

Leaves writing to `writer`, reading to `reader`, the other calls to `ledger_calls`, and starting and
ending to `client_session`.

Invariants: a client belongs to one loop and one process; every call ends within its timeout; every
error of the metadata service is translated into a `LedgerError`.

Source: api design, "Client".
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from random import Random
from ssl import SSLContext
from typing import TYPE_CHECKING, Final, Self

from ledger_client.bookies.placement import PlacementPolicy
from ledger_client.client_services import ClientSettings
from ledger_client.client_session import ClientSession
from ledger_client.config import ClientConfig
from ledger_client.encryption.keys import Encryption, StoredPayloads
from ledger_client.handle import AwaitableHandle, Handle, LoopGuard, in_own_loop
from ledger_client.info import LedgerInfo
from ledger_client.ledger_calls import LedgerCalls, LedgerLists, NewLedger
from ledger_client.metadata_failures import metadata_call
from ledger_client.observability import ClientStats, EventCallback
from ledger_client.reading.many_ledgers import LedgerRange, RangePart, read_ranges
from ledger_client.reading.reader import LedgerReader
from ledger_client.replication import Quorum
from metadata.ids import LedgerId, is_ledger_id
from metadata.ledgers.payload_encryption import PayloadEncryption
from metadata.registry.cluster import open_cluster_store
from metadata.store.interface import MetadataStore
from metadata.store.uri import parse_metadata_uri
from quire.identity.client_file import identity_in
from quire.identity.tls import fixed

if TYPE_CHECKING:
    from ledger_client.chains import Chain
    from ledger_client.recovery.abandoned_recovery import AbandonedLedgers, AbandonedRecovered
    from ledger_client.writing.writer import LedgerWriter

CHUNK_BYTES: Final = 2 * 1024 * 1024
"""Size of the lists in which ranges of many ledgers are handed over, in bytes."""


class LedgerClient(Handle):
    """Opens ledgers of one cluster. Connects at its first use, or when its block is entered."""

    def __init__(
        self,
        uri: str,
        *,
        config: ClientConfig | None = None,
        ssl: SSLContext | None = None,
        credentials: bytes = b"",
        on_event: EventCallback | None = None,
        policy: PlacementPolicy | None = None,
    ) -> None:
        """Create a client for the cluster at `zk://host:port[,host:port]/path[?client=FILE]`, or
        behind the gateways at `gateway://host:port[,host:port][?client=FILE]`.

        With `ssl`, or a client's file with TLS, bookies are contacted only over TLS. New
        connections use the certificates of a client's file as they are then, and `ssl` as it is.
        With `[sasl]` in that file, the client logs in at bookies that take logins. `policy` chooses
        bookies; the default is `SpreadPolicy()`. `on_event` is called, on the loop, with each
        `ClientEvent`. Raises ValueError for a malformed URI, SecurityError for a client's file that
        cannot be used.
        """
        where = parse_metadata_uri(uri)
        identity = identity_in(where.client_file)
        config = config or ClientConfig()
        rng = Random()  # tokens must differ, they need not be secret
        self._session = ClientSession(
            ClientSettings(
                open_store=partial(_open_store, uri, config, rng),
                address=where.host_text,
                config=config,
                rng=rng,
                wall_clock_ms=_wall_clock_ms,
                ssl=identity.contexts if ssl is None else fixed(ssl),
                sasl=identity.sasl,
                credentials=credentials,
                policy=policy,
                on_event=on_event,
            )
        )

    @classmethod
    def from_parts(
        cls,
        store: MetadataStore,
        *,
        rng: Random,
        wall_clock_ms: Callable[[], int],
        config: ClientConfig | None = None,
        credentials: bytes = b"",
        policy: PlacementPolicy | None = None,
        on_event: EventCallback | None = None,
    ) -> Self:
        """Create a client on a given store, which it closes at its end: for tests and
        simulation.
        """

        async def given() -> MetadataStore:
            return store

        client = cls.__new__(cls)
        client._session = ClientSession(  # noqa: SLF001 - same class
            ClientSettings(
                open_store=given,
                address=store.address,
                config=config or ClientConfig(),
                rng=rng,
                wall_clock_ms=wall_clock_ms,
                ssl=None,
                credentials=credentials,
                policy=policy,
                on_event=on_event,
            )
        )
        return client

    # -- ledgers ---------------------------------------------------------------------------------

    def create_ledger(
        self,
        quorum: Quorum,
        *,
        ledger_id: int | None = None,
        digest: str = "crc32c",
        password: bytes = b"",
        metadata: Mapping[str, str | bytes] | None = None,
        encryption: Encryption | PayloadEncryption | None = None,
        timeout: float | None = None,
    ) -> "AwaitableHandle[LedgerWriter]":
        """Create a ledger and open it for writing: await the result, or enter it.

        With `encryption`, payloads are encrypted before they leave the client; a
        `PayloadEncryption` says how the payloads to append, which are ciphertext, were encrypted. A
        `password` has at least 16 bytes.

        Leaving its block waits for pending appends and closes the ledger. An id that you choose
        must never have been used or allocated: choose far above the allocated ones, which begin at
        1. Raises ValueError for arguments out of range; NotEnoughBookiesError, LedgerExistsError,
        MetadataTooLargeError, MetadataUnavailableError, EncryptionKeyError, PrincipalUnknownError.
        """
        wanted = NewLedger.of(quorum, ledger_id, digest, password, metadata, encryption)
        return AwaitableHandle(partial(self._session.create, wanted, timeout))

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        encryption: Encryption | StoredPayloads | None = None,
        timeout: float | None = None,
    ) -> AwaitableHandle[LedgerReader]:
        """Open a ledger for reading, even while it is being written; never fences. Await the
        result, or enter it. Payloads are decrypted with `encryption`, or returned as they are with
        `AS_STORED`.

        Raises LedgerNotFoundError, UnauthorizedError, MetadataUnavailableError;
        EncryptedLedgerError, PlainLedgerError, EncryptionKeyError.
        """
        wanted = _checked(ledger_id)
        return AwaitableHandle(partial(self._session.open, wanted, password, encryption, timeout))

    async def recover_ledger(
        self, ledger_id: int, *, password: bytes = b"", timeout: float | None = None
    ) -> LedgerInfo:
        """Fence a ledger's writer, recover the confirmed entries, and close the ledger; return its
        new info.

        Does not change a closed ledger. Raises LedgerNotFoundError, RecoveryUndecidedError,
        UnauthorizedError, NotEnoughBookiesError, MetadataUnavailableError.
        """
        services, limit = await self._session.begin(timeout)
        return await LedgerCalls(services).recover(_checked(ledger_id), password, limit)

    async def recover_ledger_unclean(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        timeout: float | None = None,
        gives_up_all: bool = False,
        even_if_writer_lives: bool = False,
    ) -> LedgerInfo:
        """Recover a ledger in in-sync mode of which no member can answer, with loss of acknowledged
        entries: it is closed at the end of the last fragment that some replica can still return.

        A clean recovery is tried first; if it succeeds, nothing is lost. Otherwise `given_up` of
        the result permanently records the lost fragments with their bookies, and those that did not
        answer are fenced in the background (`wait_for_fences`). Raises WriterAliveError when the
        ledger is open and the client that writes it is registered, unless `even_if_writer_lives`;
        RecoveryUndecidedError when no earlier fragment can be read either, unless `gives_up_all`:
        then the ledger is closed without entries. Also raises LedgerNotFoundError,
        UnauthorizedError, MetadataUnavailableError, and LedgerError for a ledger in quorum mode.
        """
        services, limit = await self._session.begin(timeout)
        return await LedgerCalls(services).recover_unclean(
            _checked(ledger_id),
            password,
            limit,
            gives_up_all=gives_up_all,
            even_if_writer_lives=even_if_writer_lives,
        )

    async def wait_for_fences(
        self, ledger_id: int, *, timeout: float | None = None
    ) -> tuple[str, ...]:
        """Wait until every member has fenced a ledger that this client recovered uncleanly, at most
        60 seconds after its close; return the members that have not. A writer that reaches those
        members, but not the metadata service, may continue. Raises TimeoutError.
        """
        services = await self._session.services()
        async with asyncio.timeout(timeout):
            return await services.late_fences.wait(_checked(ledger_id))

    async def abandoned_ledgers(
        self, ledger_ids: Iterable[int], *, password: bytes = b"", timeout: float | None = None
    ) -> "AbandonedLedgers":
        """Return which of these ledgers are not closed, have no writer any more, and have entries
        that readers do not see; bookies of at most 20 ledgers are asked. Changes nothing.
        """
        from ledger_client.recovery.abandoned_recovery import find_abandoned  # noqa: PLC0415

        wanted = [_checked(ledger_id) for ledger_id in ledger_ids]
        services, limit = await self._session.begin(timeout)
        return await find_abandoned(services, wanted, password, limit)

    async def recover_abandoned(
        self, ledger_ids: Iterable[int], *, password: bytes = b"", timeout: float | None = None
    ) -> "AbandonedRecovered":
        """Recover those of these ledgers whose writers are gone. To find that out takes two session
        timeouts (rule 9.2); ledgers of live writers stay as they are.
        """
        from ledger_client.recovery.abandoned_recovery import AbandonedRecovery  # noqa: PLC0415

        wanted = [_checked(ledger_id) for ledger_id in ledger_ids]
        services, limit = await self._session.begin(timeout)
        recovery = AbandonedRecovery(services, password, limit)
        return await recovery.recover(wanted)

    async def ledger_info(self, ledger_id: int, *, timeout: float | None = None) -> LedgerInfo:
        """Return a ledger as currently stored. Raises LedgerNotFoundError."""
        services, limit = await self._session.begin(timeout)
        metadata, _, _ = await LedgerCalls(services).find(_checked(ledger_id), b"", limit)
        return LedgerInfo.of(metadata)

    @in_own_loop
    async def ledger_infos(
        self, ledger_ids: Iterable[int], *, timeout: float | None = None
    ) -> AsyncGenerator[LedgerInfo | None, None]:
        """Stream many ledgers as currently stored, in the given order; many are read at a time.
        None for a ledger that does not exist. `timeout` limits each step.
        """
        pages = self.ledger_info_pages(ledger_ids, timeout=timeout)
        async with aclosing(pages):
            async for page in pages:
                for info in page:
                    yield info

    @in_own_loop
    async def ledger_info_pages(
        self, ledger_ids: Iterable[int], *, timeout: float | None = None
    ) -> AsyncGenerator[list[LedgerInfo | None], None]:
        """Stream the same as `ledger_infos`, in lists."""
        wanted = [_checked(ledger_id) for ledger_id in ledger_ids]
        services = await self._session.services()
        async for page in LedgerLists(services).named(wanted, self._session.limit(timeout)):
            yield page

    @in_own_loop
    async def read_ranges(
        self,
        ranges: Iterable[LedgerRange],
        *,
        password: bytes = b"",
        encryption: Encryption | StoredPayloads | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        timeout: float | None = None,
    ) -> AsyncGenerator[list[RangePart], None]:
        """Stream the entries of ranges of many ledgers, in order, in lists of about `chunk_bytes`;
        the next ledgers are opened and read ahead.

        A range that fails ends with a part that has the failure, and the next ranges follow.
        `timeout` limits the opening of each ledger.
        """

        async def opened(ledger_id: LedgerId) -> LedgerReader:
            return await self._session.open(
                _checked(ledger_id), password, encryption, timeout, is_one_of_many=True
            )

        await self._session.services()
        async with aclosing(read_ranges(opened, ranges, chunk_bytes)) as chunks:
            async for chunk in chunks:
                yield chunk

    @in_own_loop
    async def list_ledgers(
        self, *, start: int = 0, timeout: float | None = None
    ) -> AsyncGenerator[LedgerInfo, None]:
        """Stream every ledger from id `start` on, in order of ids. The stream may or may not
        include ledgers that are created or deleted at the same time; it leaves out those whose
        metadata cannot be read (`LedgerUnreadable`). `timeout` limits each step.
        """
        pages = self.ledger_pages(start=start, timeout=timeout)
        async with aclosing(pages):
            async for page in pages:
                for info in page:
                    yield info

    @in_own_loop
    async def ledger_pages(
        self, *, start: int = 0, timeout: float | None = None
    ) -> AsyncGenerator[list[LedgerInfo], None]:
        """Stream the same as `list_ledgers`, in lists."""
        lists = LedgerLists(await self._session.services())
        async for page in lists.all(_checked(start), self._session.limit(timeout)):
            yield page

    async def delete_ledger(self, ledger_id: int, *, timeout: float | None = None) -> None:
        """Delete a ledger, whatever its state. Raises LedgerNotFoundError."""
        services, limit = await self._session.begin(timeout)
        await LedgerCalls(services).delete(_checked(ledger_id), limit)

    # -- chains of ledgers -----------------------------------------------------------------------

    def chain(self, name: str) -> "Chain":
        """Return a handle of the chain with this name, which need not exist yet. Raises ValueError
        for an invalid name.
        """
        from ledger_client.chains import Chain  # noqa: PLC0415 - most clients use none

        return Chain(name, self._session)

    async def list_chains(self, *, timeout: float | None = None) -> list[str]:
        """Return the names of all chains, sorted."""
        services, limit = await self._session.begin(timeout)
        async with metadata_call("listing chains", services.store.address, limit):
            return await services.chains.names()

    # -- the client itself -----------------------------------------------------------------------

    @property
    def _own_loop(self) -> LoopGuard:
        return self._session.own_loop

    def stats(self) -> ClientStats:
        """Return a snapshot of the client's counters."""
        return self._session.stats()

    async def aclose(self) -> None:
        """Close every open handle (writers at their LAC) and end the client. Another call does
        nothing.
        """
        await self._session.aclose()

    def __del__(self) -> None:
        """Warn of a client that was not closed: its connections and open ledgers stay."""
        session: ClientSession | None = getattr(self, "_session", None)  # or its URI was refused
        if session is not None and session.is_left_open:
            self._warn_dropped()

    def _description(self) -> str:  # type: ignore[explicit-override]
        return f"of {self._session.description}"

    async def __aenter__(self) -> Self:
        """Connect. Raises MetadataUnavailableError."""
        await self._session.services()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.aclose()


def _checked(ledger_id: object) -> LedgerId:
    if not isinstance(ledger_id, int):
        kind = type(ledger_id).__name__
        raise TypeError(f"a ledger id is an int, not the {kind} {ledger_id!r}: use int(...)")
    if not is_ledger_id(ledger_id):
        raise ValueError(f"{ledger_id} is not a ledger id: use 0 to 2^63 - 1")
    return LedgerId(ledger_id)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the edge of the process


def _open_store(uri: str, config: ClientConfig, rng: Random) -> Awaitable[MetadataStore]:
    return open_cluster_store(
        uri,
        rng=rng,
        operation_timeout_s=config.metadata_timeout_s,
        session_timeout_s=config.session_timeout_s,
    )
