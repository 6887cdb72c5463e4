"""Published jobs of repair.

Leaves which jobs are published, and at most how many (JOBS_MAX), to the auditor and to operators;
which worker does a job to `claims.py`.

Invariants: a job is changed and removed only at the version that was read; publishing a job again
changes nothing. A job may outlive its need, for example after a removal whose outcome was unknown:
workers read the ledger's metadata before they copy.

Source: protocol rules 1.2-1.3, 9.1 and 9.3.
"""

import contextlib
from random import Random
from typing import Final

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import REPAIR_JOBS
from metadata.repair.jobs import JOB_CODEC, Job, JobName, job_name_of
from metadata.store.interface import Cancel, MetadataStore, WatchCallback, find
from metadata.store.records import NodeNames, RecordKind
from metadata.store.value_changes import until_certain

JOBS_MAX: Final = 1_000
"""Maximum number of published jobs. The auditor publishes the most urgent ones, and more when these
are done.
"""

NEVER_ANNOUNCED: Final = Version(-1)

JOB_KIND: Final = RecordKind[JobName, Job](
    REPAIR_JOBS, NodeNames(lambda name: name.text, job_name_of), JOB_CODEC, key_field="name"
)


class JobStore:
    """Published jobs of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def publish(self, job: Job) -> bool:
        """Publish a job. Returns False if one with this name is published already. Raises as
        `until_certain`.
        """
        node = JOB_KIND.node(job.name)
        value = node.pack(job)

        async def attempt(unknown_count: int) -> bool:
            try:
                await self._store.create(node.path, value)
            except NodeExistsError:
                return unknown_count > 0  # probably an earlier attempt of this call
            return True

        return await until_certain(self._rng, attempt)

    async def published(self) -> list[JobName]:
        """Return the names of all published jobs in the order in which they are to be done, with
        one fresh read.
        """
        names = await self._store.children(REPAIR_JOBS, fresh=True)
        return sorted(filter(None, map(job_name_of, names)))

    async def get(self, name: JobName) -> tuple[Job, Version]:
        """Read a job with a fresh read. Raises NodeNotFoundError, MetadataFormatError."""
        node = JOB_KIND.node(name)
        stored = await self._store.get(node.path, fresh=True)
        return node.unpack(stored.value), stored.version

    async def change(self, job: Job, expected: Version) -> Version | None:
        """Store a change of the job that was read at `expected`, and return the new version; None
        if another process changed or removed the job. Raises as `until_certain`.
        """
        node = JOB_KIND.node(job.name)
        value = node.pack(job)

        async def attempt(unknown_count: int) -> Version | None:
            if unknown_count:
                stored = await find(self._store, node.path)
                if stored is not None and stored.value == value:
                    return stored.version
            try:
                return await self._store.compare_and_set(node.path, value, expected)
            except (NodeNotFoundError, VersionConflictError):
                return None

        return await until_certain(self._rng, attempt)

    async def remove(self, name: JobName, expected: Version) -> bool:
        """Remove the job that was read at `expected`. Returns True once the job does not exist,
        False if another process changed it. Raises as `until_certain`.
        """
        path = JOB_KIND.path(name)

        async def attempt(_unknown_count: int) -> bool:
            try:
                await self._store.delete(path, expected)
            except NodeNotFoundError:
                pass
            except VersionConflictError:
                return False
            return True

        return await until_certain(self._rng, attempt)

    async def announced(self) -> Version:
        """Return a number that differs after each `announce`, with a fresh read. Read it before the
        jobs: a job that is queued after that changes it again.
        """
        stored = await find(self._store, REPAIR_JOBS)
        return NEVER_ANNOUNCED if stored is None else stored.version

    async def announce(self) -> None:
        """Tell the workers that jobs were published or queued again. One call does for many jobs.

        Workers look at blocked jobs once in a while too, so a failure is no error.
        """
        with contextlib.suppress(
            NodeNotFoundError, OutcomeUnknownError, StoreUnavailableError, VersionConflictError
        ):  # a conflict: another process announced after this call began
            await self._store.compare_and_set(REPAIR_JOBS, b"", await self.announced())

    def watch_announced(self, callback: WatchCallback) -> Cancel:
        """Call back after each `announce`; as `MetadataStore.watch_value`."""
        return self._store.watch_value(REPAIR_JOBS, callback)

    def watch(self, callback: WatchCallback) -> Cancel:
        """Call back when a job was published or removed; as `MetadataStore.watch_children`."""
        return self._store.watch_children(REPAIR_JOBS, callback)
