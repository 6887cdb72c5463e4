"""Published jobs of repair.

Leaves which jobs are published, and at most how many (JOBS_MAX), to the auditor and to operators;
which worker does a job to `claims.py`.

Invariants: a job is changed and removed only at the version that was read; publishing a job again
changes nothing. A job may outlive its need, for example after a removal whose outcome was unknown:
workers read the ledger's metadata before they copy.

Source: protocol rules 1.2-1.3, 9.1 and 9.3.
"""

import asyncio
import contextlib
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import REPAIR_JOBS, repair_job_path
from metadata.repair.jobs import Job, JobName, job_name_of, pack_job, unpack_job
from metadata.store.interface import Cancel, MetadataStore, WatchCallback, find

JOBS_MAX: Final = 1_000
"""Maximum number of published jobs. The auditor publishes the most urgent ones, and more when these
are done.
"""

NEVER_ANNOUNCED: Final = Version(-1)


class JobStore:
    """Published jobs of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def publish(self, job: Job) -> bool:
        """Publish a job. Returns False if one with this name is published already.

        Repeats until the outcome is certain or the call is cancelled. Raises StoreUnavailableError
        when nothing was written.
        """
        path, value = repair_job_path(job.name.text), pack_job(job)
        backoff = Backoff(self._rng)
        is_unknown = False
        while True:
            try:
                await self._store.create(path, value)
            except NodeExistsError:
                return is_unknown  # probably an earlier attempt of this call
            except OutcomeUnknownError:
                is_unknown = True
            except StoreUnavailableError:
                if not is_unknown:
                    raise
            else:
                return True
            await asyncio.sleep(backoff.next_s())

    async def published(self) -> list[JobName]:
        """Return the names of all published jobs in the order in which they are to be done, with
        one fresh read.
        """
        names = await self._store.children(REPAIR_JOBS, fresh=True)
        return sorted(filter(None, map(job_name_of, names)))

    async def get(self, name: JobName) -> tuple[Job, Version]:
        """Read a job with a fresh read. Raises NodeNotFoundError, MetadataFormatError."""
        stored = await self._store.get(repair_job_path(name.text), fresh=True)
        return unpack_job(name, stored.value), stored.version

    async def change(self, job: Job, expected: Version) -> Version | None:
        """Store a change of the job that was read at `expected`, and return the new version.

        Returns None if another process changed or removed the job. Repeats until the outcome is
        certain or the call is cancelled. Raises StoreUnavailableError when nothing was written.
        """
        path, value = repair_job_path(job.name.text), pack_job(job)
        backoff = Backoff(self._rng)
        is_unknown = False
        while True:
            try:
                if is_unknown:
                    stored = await find(self._store, path)
                    if stored is not None and stored.value == value:
                        return stored.version
                return await self._store.compare_and_set(path, value, expected)
            except (NodeNotFoundError, VersionConflictError):
                return None
            except OutcomeUnknownError:
                is_unknown = True
            except StoreUnavailableError:
                if not is_unknown:
                    raise
            await asyncio.sleep(backoff.next_s())

    async def remove(self, name: JobName, expected: Version) -> bool:
        """Remove the job that was read at `expected`. Returns True once the job does not exist,
        False if another process changed it.

        Repeats until the outcome is certain or the call is cancelled. Raises StoreUnavailableError
        when nothing was removed.
        """
        path = repair_job_path(name.text)
        backoff = Backoff(self._rng)
        is_unknown = False
        while True:
            try:
                await self._store.delete(path, expected)
            except NodeNotFoundError:
                return True
            except VersionConflictError:
                return False
            except OutcomeUnknownError:
                is_unknown = True
            except StoreUnavailableError:
                if not is_unknown:
                    raise
            else:
                return True
            await asyncio.sleep(backoff.next_s())

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
