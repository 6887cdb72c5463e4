"""Process of repair: the only place that builds its real store and rng.

Invariants: a failure to start is logged, and tried again after START_AGAIN_S; a defect ends the
process, which its owner starts again.
"""

import asyncio
import os
import platform
import random
from functools import partial
from typing import Final

from ledger_client.cluster_access import identity_of
from ledger_client.config import ClientConfig
from metadata.errors import MetadataError
from metadata.registry.cluster import open_cluster_store
from quire.identity.errors import SecurityError
from quire.repair.options import RepairOptions
from quire.repair.repair_process import RepairProcess, RepairRoles
from quire.server.notify import READY, THIS_PROCESS
from quire.server.process import ServerProcess, first_of, run_server, wall_clock_ms
from quire.server.server_log import ServerLog, loop_time

START_AGAIN_S: Final = 5.0
PROCESS_ID_PREFIX: Final = "repair"


def run_auditor(options: RepairOptions) -> int:
    """Be a candidate for the auditor until a stop signal; return the exit status."""
    return _run(options, RepairRoles(audits=True, copies=False))


def run_worker(options: RepairOptions) -> int:
    """Repair ledgers until a stop signal; return the exit status."""
    roles = RepairRoles(audits=options.audit, copies=True, probes_from=platform.node())
    return _run(options, roles)


def _run(options: RepairOptions, roles: RepairRoles) -> int:
    process = ServerProcess("repair", options.log_level, options.die_with_parent, failures=())
    config = ClientConfig(session_timeout_s=options.session_timeout_s)
    return run_server(process, partial(_serve, options.metadata, config, roles))


async def _serve(
    metadata: str, config: ClientConfig, roles: RepairRoles, stopping: asyncio.Event
) -> None:
    THIS_PROCESS.send(READY)  # it repairs once the metadata service answers
    await first_of(_keep_repairing(metadata, config, roles), stopping)


async def _keep_repairing(metadata: str, config: ClientConfig, roles: RepairRoles) -> None:
    """Repair until cancelled."""
    rng, log = random.Random(os.urandom(16)), ServerLog(loop_time)
    while True:
        try:
            await _repair(metadata, config, roles, rng)
        except (MetadataError, SecurityError) as error:
            log.warning("repair not started", reason=str(error))
        await asyncio.sleep(START_AGAIN_S)


async def _repair(
    metadata: str, config: ClientConfig, roles: RepairRoles, rng: random.Random
) -> None:
    identity = identity_of(metadata)
    store = await open_cluster_store(metadata, rng=rng, session_timeout_s=config.session_timeout_s)
    process = RepairProcess(
        store,
        process_id=f"{PROCESS_ID_PREFIX}-{rng.randbytes(6).hex()}",
        rng=rng,
        secret_rng=random.SystemRandom(),
        wall_clock_ms=wall_clock_ms,
        config=config,
        identity=identity,
        roles=roles,
    )
    try:
        await process.start()
        await asyncio.get_running_loop().create_future()
    finally:
        await process.aclose()
        await store.aclose()
