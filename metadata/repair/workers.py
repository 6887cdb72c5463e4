"""Workers of repair that are up: each is registered, and all know how many there are.

Leaves what a worker does, and its share of the cluster's ceiling, to `quire.repair`; holding the
node to `ephemeral.py`, and following the nodes of other workers to `metadata.store.records`.

Format: the value of `/repair/workers/<worker id>` is that of an ephemeral node (`ephemeral.py`)
around a `WorkerReport`.

Invariants: one live process holds a worker's id; a worker is dropped only when a successful read
shows that it is gone.

Source: protocol rules 2.1 and 9.1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from metadata.errors import MetadataFormatError, NameHeldError
from metadata.ids import BookieId, is_bookie_id
from metadata.paths import REPAIR_WORKERS, repair_worker_path
from metadata.records import codec_of
from metadata.store.ephemeral import HELD_WAIT_S, EphemeralKeeper, unpack_held
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import ChildView, NodeNames

REPORTED_MAX: Final = 1_000
"""Maximum number of bookies in one worker's report."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says of the bookies around it."""

    host: str = ""
    """Machine of the worker."""
    unreached: tuple[BookieId, ...] = ()
    """Registered bookies that it cannot reach."""


_REPORT_CODEC: Final = codec_of(WorkerReport)


class WorkerRegistrar:
    """Registration of one worker, kept across sessions. A worker's id has the form of a bookie's.

    `on_lost` is called when another process holds the id: this one must stop working.
    """

    def __init__(
        self,
        store: MetadataStore,
        worker_id: str,
        rng: Random,
        *,
        on_lost: Callable[[NameHeldError], None] | None = None,
    ) -> None:
        assert is_bookie_id(worker_id), worker_id
        path = repair_worker_path(worker_id)
        first = _REPORT_CODEC.pack(path, WorkerReport())
        self._path = path
        self._keeper = EphemeralKeeper(store, path, first, rng, on_lost=on_lost)

    async def start(self, *, held_wait_s: float = HELD_WAIT_S) -> None:
        """Register. Raises NameHeldError if another live process still holds the id after
        `held_wait_s`, StoreUnavailableError when the store does not answer.
        """
        await self._keeper.start(held_wait_s=held_wait_s)

    def report(self, report: WorkerReport) -> None:
        """Replace what the worker says, as soon as possible."""
        self._keeper.set_content(_REPORT_CODEC.pack(self._path, report))

    async def aclose(self) -> None:
        """Remove the registration."""
        await self._keeper.aclose()


class WorkerDirectory(ChildView[str, WorkerReport]):
    """All live workers, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(
            store,
            REPAIR_WORKERS,
            NodeNames[str](str, str),
            _report_of,
            rng,
        )

    @property
    def worker_ids(self) -> Sequence[str]:
        """Ids of the live workers as last read, sorted."""
        return sorted(self.records)

    @property
    def count(self) -> int:
        """Number of live workers as last read; 0 before a worker sees its own registration."""
        return len(self.records)

    @property
    def unreached(self) -> Mapping[BookieId, Sequence[str]]:
        """Bookies that workers cannot reach, with the machines of these workers."""
        reports: dict[BookieId, list[str]] = {}
        for worker_id, report in sorted(self.records.items()):
            for bookie_id in report.unreached:
                reports.setdefault(bookie_id, []).append(report.host or worker_id)
        return reports

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `worker_ids` shows it."""
        return self.on_record(lambda _id, _before, _after: callback())


def _report_of(worker_id: str, value: bytes) -> WorkerReport:
    """Return a worker's report; an empty one if it cannot be read: the worker counts all the
    same.
    """
    path = repair_worker_path(worker_id)
    try:
        return _REPORT_CODEC.unpack(path, unpack_held(path, value).content)
    except MetadataFormatError:
        return WorkerReport()
