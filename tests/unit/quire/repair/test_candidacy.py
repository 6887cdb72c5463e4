"""A process audits while it is elected, and ends the audit before it ends."""

import asyncio
import random

from metadata.repair.auditor_election import AuditorElection
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair.repair_process import _Candidacy
from quire.server.server_log import ServerLog
from tests.until import until


class Audits:
    """Audits that need some time to end after they were cancelled."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    async def run(self) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.ended += 1


async def test_a_process_that_is_elected_again_at_once_audits_again() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    election, audits = AuditorElection(store, "bookie-a", random.Random(1)), Audits()
    candidacy = _Candidacy(election, audits.run, ServerLog(lambda: 0.0))
    await candidacy.start()
    await until(lambda: audits.begun == 1)
    store.expire()
    await until(lambda: election.is_auditor)
    assert audits.ended == 0, "it is elected before the first audit has ended"
    await until(lambda: audits.begun == 2)
    assert audits.ended == 1
    await candidacy.aclose()
    assert (audits.begun, audits.ended) == (2, 2)
    await store.aclose()
