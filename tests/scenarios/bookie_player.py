"""Player of transcripts of one bookie, with real identity, connections and storage.

Leaves the messages of a connection to `bookie_wire.py`, the disk and the clock to the simulation,
and the metadata service to the one in memory.

Set-up: `disks serving` (formatted, and the bookie started) or `disks empty`.

Events, about ledger 7 unless `ledger=N` is given; `me` is this bookie's id:
    format | start | stop | crash | pass SECONDS       crash: power failure, loss by a draw
    tear                                               it fails; every other unsynced sector is lost
    kill | cut-power                                   the process dies alone; then the machine
    empty DIRECTORY | empty all | swap DIRECTORY       lost; exchanged for another bookie's
    keep-copy | keep-copy-of-files | put-copy-back     of all directories: by blocks, by files
    another-process                                    records its position as this bookie
    register-another | end-another         a process that does not answer; its session ends
    back-up-metadata | restore-metadata                all data of the metadata service
    dump-metadata | restore-dump | accept-metadata | accept-restore      by an operator (10.6)
    hold-syncs | release-syncs | fail-sync | damage ID      a bit of that entry flips in the log
    hello NAME [low=N high=N] | hello-and-add NAME     on a separate connection; `any`: no name
    add 0..4 [lac=N] [recovery] [other] [damaged]      the usual payloads, or other ones
    read 0..4 [fence] | lac | fence | write-lac N | tell-lac N | wait-lac N | fence-without-key
    REQUEST & REQUEST                                  of the last three lines: in one loop step
    metadata open|in_recovery|closed|deleted [fragments=0:me,b] [incoming=me]    what is stored
    metadata-is-stale | metadata-leader-is-replaced | metadata-is-fresh  all but fresh, agreed reads
    hold-metadata N | release-metadata                 the bookie's Nth request from now on
    collect                                            check if the data may be removed
    follow-feed                                        read the deletion feed, as of now
    trim | expire-feed          clean, and trim every tombstone; remove its deletion from the feed

An action is an answer: the event of the request, a colon, and the bookie's answer. An answer that
takes more than a second of virtual time comes with a later event. Every event plays the transcript
so far again from its beginning: one seed, one history, and no event loop that outlives a call.
"""

import asyncio
import copy
import random
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Final

from bookie.config import KIB, StorageConfig
from bookie.errors import BookieError, CookieMismatchError, CookieMissingError
from bookie.files.disk import remove_mark
from bookie.identity.identity import LIMBO_NAME, AnchorWatch, format_directories, prove_identity
from bookie.server.collector import Collector
from bookie.server.server_context import ServerContext
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.horizon import ledger_status_reader, trim_tombstones
from bookie.storage.opening import KnownDisk
from bookie.wire import messages as m
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId, Version
from metadata.ledgers.deletion_feed import DeletionFeed, DeletionFollower
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS
from metadata.registry.cluster import ensure_cluster
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.scenarios import words as w
from tests.scenarios.bookie_metadata import (
    Claimed,
    KeptMetadata,
    MetadataFaults,
    claim,
    context_of,
    record_as_another,
    register_another,
)
from tests.scenarios.bookie_wire import Wire, batch_of, fence_without_key, hello_of, request_of
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation, simulation_loop
from tests.simulation.network import Network, NetworkOdds
from tests.support.bookie.batches import payload_of

SEED: Final = 11
SETTLE_S: Final = 1.0
KEY: Final = b"k" * 32
LEDGERS: Final = (w.LEDGER, LedgerId(8))
CONFIG: Final = StorageConfig(segment_bytes_max=64 * KIB, reserve_bytes_min=KIB, reserve_share=0.0)


class BookiePlayer:
    """One machine's disks, at most one bookie that runs on them, and its clients."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._before = {"serving": (["format"], ["start"]), "empty": ()}[setup["disks"]]
        self._events: list[Sequence[str]] = []

    def play(self, words: Sequence[str]) -> list[str]:
        self._events.append(words)
        return run_simulation(self._happen, SEED)

    async def _happen(self) -> list[str]:
        machine = _Machine()
        happened: list[str] = []
        for words in (*self._before, *self._events):
            happened = await machine.perform(words)
        await machine.end()
        return happened


class _Machine:
    """Performs the events of a transcript."""

    def __init__(self) -> None:
        Network(simulation_loop(), SEED, NetworkOdds()).install()
        self._rng = random.Random(f"bookie {SEED}")
        self._platter = Platter()
        self._copy: Platter | None = None
        self._disk_faults = DiskFaults()
        self._metadata_faults = MetadataFaults()
        self._server = server = MemoryMetadataServer(faults=self._metadata_faults)
        self._kept = KeptMetadata(copy.deepcopy(server.tree), [])
        self._store = MemoryMetadataStore(server)
        self._other = MemoryMetadataStore(server)
        self._metadata_faults.bookie_session = self._store.session_id
        self._others = LedgerStore(MemoryMetadataStore(server), self._rng, lambda: 0)
        self._bookie_ids: list[BookieId] = []
        self._claimed: Claimed | None = None
        self._node = 0
        self._context: ServerContext | None = None
        self._wire: Wire | None = None
        self._lines: list[str] = []

    async def perform(self, words: Sequence[str]) -> list[str]:
        """Perform one event and its consequences; return the bookie's answers."""
        self._lines.clear()
        match words:
            case ["pass", seconds]:
                await asyncio.sleep(float(seconds))
            case ["cut-power"]:
                self._platter.lose_power()
            case ["format" | "start" | "stop" | "crash" | "tear" | "kill", *_]:
                await self._live(words[0])
            case [
                "empty" | "swap" | "keep-copy" | "keep-copy-of-files" | "put-copy-back" | "damage",
                *where,
            ]:
                await self._hurt(words[0], "".join(where))
            case [
                "another-process" | "register-another" | "end-another"
                | "back-up-metadata" | "restore-metadata" | "accept-metadata"
                | "dump-metadata" | "restore-dump" | "accept-restore"
                | "metadata-is-stale" | "metadata-is-fresh" | "metadata-leader-is-replaced"
            ]:  # fmt: skip
                await self._change_service(words[0])
            case ["hold-syncs" | "release-syncs" | "fail-sync"]:
                self._slow(words[0])
            case ["metadata", state, *_]:
                await self._store_metadata(state, w.parse_options(words[1:]))
            case ["hold-metadata", count]:
                self._metadata_faults.requests_until_held = int(count)
                self._metadata_faults.released = asyncio.Event()
            case ["expire-feed"]:
                feed = DeletionFeed(self._store)
                expired = await feed.expire(w.LEDGER % DELETION_SHARDS, before_ms=1)
                self._lines.append(f"expired {expired}")
            case ["release-metadata"]:
                self._metadata_faults.released.set()
            case _:
                for request in " ".join(words).split(" & "):
                    self._talk(request.split())
        await asyncio.sleep(SETTLE_S)
        return [self._readable(line) for line in self._lines]

    async def end(self) -> None:
        """Release held requests and wait for their end, so that none is cut off."""
        self._slow("release-syncs")
        self._metadata_faults.released.set()
        await asyncio.sleep(SETTLE_S)

    # -- the process and its disks

    async def _live(self, what: str) -> None:
        loop = simulation_loop()
        if what == "format":
            await self._format(self._platter)
        elif what == "start":
            started: asyncio.Future[None] = loop.create_future()
            node, _task = loop.spawn(self._serve(started))
            await started
            if self._context is not None and self._wire is None:
                self._node = node
                self._wire = loop.run_in(node, self._connect)
        elif self._context is not None:
            if what == "stop":
                await loop.run_in(self._node, lambda: loop.create_task(self._stop()))
            loop.kill(self._node)
            if what == "crash":
                self._platter.crash(self._rng)
            elif what == "tear":
                self._platter.lose_power(lambda sector: sector % 2 == 1)
            elif what == "kill":
                self._platter.kill(self._rng)
            if self._wire is not None:
                self._wire.lose()
            self._context = self._wire = self._disk_faults.paused = None

    async def _stop(self) -> None:
        assert self._context is not None
        assert self._claimed is not None
        self._claimed.recording.cancel()
        await asyncio.gather(self._claimed.recording, return_exceptions=True)
        await self._context.storage.close()
        await self._claimed.keeper.record_orderly(stopped_ms=0)

    async def _change_service(self, how: str) -> None:
        match how:
            case "another-process":
                await record_as_another(self._store, self._bookie_ids[0])
            case "register-another":
                await register_another(self._other, self._bookie_ids[0])
            case "end-another":
                await self._other.aclose()
            case "metadata-is-stale" | "metadata-is-fresh" | "metadata-leader-is-replaced":
                self._metadata_faults.standing = how
            case "accept-metadata":
                assert self._claimed is not None
                await self._claimed.age.accept()
            case _:
                await self._kept.change(how, self._server, self._store)

    async def _format(self, platter: Platter) -> None:
        disk = CrashableDisk(platter, self._rng)
        try:
            create = partial(ensure_cluster, rng=self._rng)
            made = await format_directories(
                disk, self._store, "bookie", self._rng, lambda: 0, create
            )
        except BookieError as error:
            self._lines.append(_show_refusal(error))
            return
        self._bookie_ids.append(made)
        self._lines.append(f"formatted {made}")

    async def _serve(self, started: "asyncio.Future[None]") -> None:
        """Start the parts of `bookie.bookie_process`, without sockets and registration."""
        disk = CrashableDisk(self._platter, self._rng, self._disk_faults)
        try:
            await disk.lock()
            marks = CrashableDisk(self._platter, random.Random(SEED))
            identity = await prove_identity(marks, self._store)
        except BookieError as error:
            await disk.close()
            self._lines.append(_show_refusal(error))
            started.set_result(None)
            return
        known = KnownDisk(identity.limbo_reason, identity.recorded_end_lsn)
        ledgers = LedgerStore(self._store, self._rng, lambda: 0)
        standing = ledger_status_reader(ledgers, identity.bookie_id, self._rng)
        storage = await BookieStorage.open(
            disk, CONFIG, rng=self._rng, known=known, read_standing=standing
        )
        if identity.limbo_reason:
            await storage.checkpoint()
            await remove_mark(marks, LIMBO_NAME)
        self._context = context_of(self._store, identity.bookie_id, storage)
        self._claimed = await claim(self._store, identity, marks, self._context, self._lines)
        is_limbo = storage.statistics().is_limbo
        self._lines.append(f"started {identity.bookie_id}{' in limbo' if is_limbo else ''}")
        started.set_result(None)
        watch = AnchorWatch(marks, identity.files, lambda error: self._lines.append(_ended(error)))
        try:
            await asyncio.gather(storage.background(), watch.run())
        except BookieError as error:
            self._lines.append(_ended(error))

    async def _hurt(self, how: str, where: str) -> None:
        platter = self._platter
        match how:
            case "keep-copy":
                self._copy = platter.copied()
            case "keep-copy-of-files":
                self._copy = platter.copied("copied")
            case "put-copy-back":
                assert self._copy is not None
                self._platter = self._copy
            case "damage":
                payload = payload_of(w.LEDGER, int(where))
                for name, content in sorted(platter.names.items()):
                    if (place := content.durable.find(payload)) >= 0:
                        platter.flip_bit(name, 8 * place)
            case "empty":
                _move_directory(platter, Platter(), where)
            case _:
                another = Platter()
                await self._format(another)
                _move_directory(platter, Platter(), where)
                _move_directory(another, platter, where)

    def _slow(self, how: str) -> None:
        faults = self._disk_faults
        if how == "hold-syncs":
            faults.paused = asyncio.Event()
        elif how == "fail-sync":
            faults.failing_syncs = 1
        elif faults.paused is not None:
            faults.paused.set()
            faults.paused = None

    # -- the metadata service

    async def _store_metadata(self, state: str, options: Mapping[str, str]) -> None:
        if state == "deleted":
            await self._others.delete(w.LEDGER)
            return
        metadata = self._metadata(LedgerState(state), options)
        try:
            _old, version = await self._others.get(w.LEDGER, fresh=True)
        except NodeNotFoundError:
            await self._others.create(metadata)
        else:
            await self._others.compare_and_set(metadata, Version(version))

    def _metadata(self, state: LedgerState, options: Mapping[str, str]) -> LedgerMetadata:
        incoming = self._named(w.parse_bookies(options.get("incoming", "")))
        fragments = [
            Fragment(fragment.first_entry_id, self._named(fragment.ensemble), incoming)
            for fragment in w.parse_fragments(options["fragments"])
        ]
        quorum = w.parse_quorum("/".join(3 * [str(len(fragments[0].ensemble))]))
        return w.ledger(quorum, fragments, state)

    def _named(self, bookies: Sequence[BookieId]) -> tuple[BookieId, ...]:
        return tuple(self._bookie_ids[0] if bookie == "me" else bookie for bookie in bookies)

    async def _collect(self, context: ServerContext) -> None:
        ledgers = LedgerStore(self._store, self._rng, lambda: 0)
        assert self._claimed is not None
        age = self._claimed.age
        collector = Collector(
            context, self._store, ledgers, self._rng, age, pass_interval_s=1.0, reads_per_s=1
        )
        try:
            removed, _ = await collector.check([w.LEDGER])
        except MetadataError as error:
            self._lines.append(f"collect: {type(error).__name__}")
        else:
            self._lines.append(f"collect: {'removed' if removed else 'kept'}")

    async def _follow_feed(self, storage: BookieStorage) -> None:
        follower = DeletionFollower(self._store, lambda _ledger_id: None, self._rng)
        storage.use_feed(follower.names)
        follower.start()
        await asyncio.sleep(SETTLE_S / 2)
        await follower.aclose()

    async def _trim(self, storage: BookieStorage) -> None:
        await storage.checkpoint()
        await storage.clean()
        await storage.checkpoint()
        count = await trim_tombstones(storage._ledgers, storage._index, 0)
        storage._ledgers._recent_tombstones.clear()
        self._lines.append(f"trimmed {count}")

    # -- its clients

    def _connect(self) -> Wire:
        assert self._context is not None
        wire = Wire(self._context, self._lines, "client")
        wire.ask("", hello_of(self._context.bookie_id, {}))
        for ledger_id in LEDGERS:
            wire.ask("", m.AttachLedger(ledger_id, KEY))
        return wire

    def _talk(self, words: Sequence[str]) -> None:
        label, options = " ".join(words), w.parse_options(words[1:])
        simulation_loop().run_in(self._node, lambda: self._ask(label, words, options))

    def _ask(self, label: str, words: Sequence[str], options: Mapping[str, str]) -> None:
        assert self._context is not None
        assert self._wire is not None
        ledger_id = LedgerId(int(options.get("ledger", w.LEDGER)))
        match words:
            case ["add", entries, *_]:
                batch = batch_of(ledger_id, entries, options)
                self._wire.add(label, batch, recovery="recovery" in options)
            case ["hello" | "hello-and-add", name, *_]:
                (bookie_id,) = self._named([BookieId("" if name == "any" else name)])
                wire = Wire(self._context, self._lines, label)
                wire.ask(label, hello_of(bookie_id, options))
                if words[0] == "hello-and-add":
                    wire.ask("", m.AttachLedger(ledger_id, KEY))
                    wire.add("its add", batch_of(ledger_id, "0..0", {}), recovery=False)
            case ["fence-without-key", *_]:
                args = self._server, self._context, self._lines, label, ledger_id
                _spawn(fence_without_key(*args))
            case ["trim"]:
                _spawn(self._trim(self._context.storage))
            case ["follow-feed"]:
                _spawn(self._follow_feed(self._context.storage))
            case ["collect"]:
                _spawn(self._collect(self._context))
            case _:
                self._wire.ask(label, request_of(ledger_id, words, options))

    def _readable(self, line: str) -> str:
        for number, bookie_id in enumerate(self._bookie_ids, 1):
            line = line.replace(bookie_id, f"bookie-{number}")
        return line


def _spawn(work: Coroutine[None, None, None]) -> None:
    simulation_loop().create_task(work).add_done_callback(asyncio.Task.result)


def _move_directory(source: Platter, target: Platter, directory: str) -> None:
    prefix = "" if directory == "all" else directory + "/"
    pairs = (source.names, target.names), (source.durable_names, target.durable_names)
    for names, moved in pairs:
        for name in [name for name in names if name.startswith(prefix)]:
            moved[name] = names.pop(name)
    for name in [name for name in source.stores if f"{name}/".startswith(prefix)]:
        target.stores[name] = source.stores.pop(name)


def _ended(error: BookieError) -> str:
    return f"ended {type(error).__name__}"


def _show_refusal(error: BookieError) -> str:
    line = f"refused {type(error).__name__}"
    if isinstance(error, CookieMissingError | CookieMismatchError):
        line += f" at {error.where}"
    if isinstance(error, CookieMismatchError):
        line += f": other {', '.join(difference.field for difference in error.differences)}"
    return line + ("; `quire bookie format`" if "`quire bookie format`" in str(error) else "")
