"""Check after healing: every ledger is recovered and read to its end, and appends continue.

Source: protocol sections 5-8; invariants "every recovery ends", "every writer with enough bookies
progresses", "every tailer reaches LAC".
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from ledger_client import LedgerClient, LedgerError, Quorum
from tests.simulation.checkers.progress import GiveUpCheck, ProgressCheck, ReturnCheck
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel, copies_wanted, write_set
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error
from tests.simulation.workloads import read_all, recover

NAME: Final = "liveness"
ATTEMPTS: Final = 6
ATTEMPT_PAUSE_S: Final = 15.0
BOOKIES_UP_S: Final = 200.0
WORK_ENDS_S: Final = 1_000.0
UNDEMANDED_S: Final = 300.0
PAIR: Final = Quorum.in_sync(2, 1, replica_lag_time_max=1.0)
Act = Callable[[], Coroutine[None, None, None]]
Look = Callable[[LedgerClient, random.Random], Coroutine[None, None, None]]


async def check_liveness(cluster: Cluster, damaged: list[str], *, is_demanded: bool) -> None:
    """Recover and read all ledgers with a new client; unless demanded, check correctness only."""
    bookies = cluster.bookies
    await cluster.wait_until(lambda: all(bookie.is_serving for bookie in bookies), BOOKIES_UP_S)
    down = [bookie.host for bookie in bookies if not bookie.is_serving]
    if down and is_demanded:
        cluster.model.report(NAME, f"{down} did not come back {BOOKIES_UP_S} s after healing")

    async def look(client: LedgerClient, rng: random.Random) -> None:
        await _look_at_all(cluster, client, rng, damaged, is_demanded=is_demanded)

    await _inspect(cluster, "inspector", look)


async def check_readable(cluster: Cluster) -> None:
    """Read all closed ledgers to their end with a new client."""

    async def look(client: LedgerClient, _: random.Random) -> None:
        for ledger_id in cluster.ledger_ids():
            ledger = cluster.model.ledgers[ledger_id]
            if not ledger.is_closed or _may_have_lost_entries(cluster, ledger):
                continue
            error = await _try(cluster, partial(_read_fully, cluster, client, ledger))
            if error is not None:
                cluster.model.report(NAME, f"ledger {ledger_id} could not be read: {error}")

    await _inspect(cluster, "reader", look)


async def _inspect(cluster: Cluster, name: str, look: Look) -> None:
    done = asyncio.Event()

    async def work(_: ClientNode, client: LedgerClient, rng: random.Random) -> None:
        try:
            await look(client, rng)
        finally:
            done.set()

    node = ClientNode(cluster, name, work)
    node.is_on_purpose = True
    node.start()
    try:
        async with asyncio.timeout(20_000):
            await done.wait()
    except TimeoutError:
        cluster.model.report(NAME, "the inspection of all ledgers did not end")
    await cluster.wait_until(lambda: not node.is_running, WORK_ENDS_S)


async def wait_for_work(cluster: Cluster) -> None:
    """Wait until every client has ended its work.

    A call may wait for damaged data until its deadline, which may be endless. Kill the clients that
    still wait for it.
    """
    cluster.is_over = True
    await cluster.wait_until(
        lambda: not any(node.is_running for node in cluster.clients), WORK_ENDS_S
    )
    for client in cluster.clients:
        if client.is_running and _may_wait_without_end(cluster, client):
            cluster.model.note("ended", f"{client.host}: it waits for what damage took")
            client.kill(power_off=False)
    cluster.availability.on_work_ended()
    busy = [node.host for node in cluster.clients if node.is_running]
    if busy:
        cluster.model.report(NAME, f"{busy} did not end within {WORK_ENDS_S} s of healing")


async def _look_at_all(
    cluster: Cluster,
    client: LedgerClient,
    rng: random.Random,
    damaged: list[str],
    *,
    is_demanded: bool,
) -> None:
    # A bookie that may have lost fences accepts no new ledgers: see protocol rule 2.4.
    sound = cluster.plan.bookie_count - len(damaged)
    for ledger_id in cluster.ledger_ids():
        ledger = cluster.model.ledgers[ledger_id]
        can_end = ledger.is_closed or _can_be_recovered(ledger, sound, len(damaged))
        await _look_at(cluster, client, ledger, is_demanded=is_demanded and can_end)
    if not is_demanded:
        if any(each.spec.is_in_sync for each in cluster.plan.quorums):
            giving_up = GiveUpCheck(cluster, client, rng, PAIR, has_spare=True, is_sound=False)
            await _try(cluster, giving_up.run)
        return
    for number, quorum in enumerate(cluster.plan.quorums):
        if quorum.ensemble > sound:
            continue
        has_spare = sound > quorum.ensemble
        is_fresh = not damaged and not number  # the first check may leave a bookie dead
        checks = [ProgressCheck, ReturnCheck] if quorum.spec.is_in_sync else [ProgressCheck]
        for kind in checks:
            check = kind(cluster, client, rng, quorum, has_spare=has_spare, is_sound=is_fresh)
            error = await _try(cluster, check.run)
            if error is not None:
                cluster.model.report(NAME, f"{quorum}: no new ledger after healing: {error}")


def _can_be_recovered(ledger: LedgerModel, sound: int, damaged: int) -> bool:
    """Return whether sound bookies can hold an ack quorum of every write set."""
    if ledger.metadata is None:
        return True
    quorum = ledger.metadata.quorum
    if quorum.is_in_sync:  # a single survivor of the last fragment is enough
        return len(ledger.metadata.last_fragment.ensemble) > damaged
    return quorum.write_quorum - damaged >= quorum.ack_quorum or sound >= quorum.ensemble_size


def _may_wait_without_end(cluster: Cluster, client: ClientNode) -> bool:
    """Return whether a client may wait for lost copies, or for members that cannot return."""
    used = [model for model in (client.reads, client.writes) if model is not None]
    held = [each for each, host in cluster.live_ledgers.items() if host == client.host]
    used += [cluster.model.ledgers[each] for each in held]
    if any(_may_have_lost_entries(cluster, model) for model in used):
        return True
    if client.writes is None or client.writes.metadata is None:
        return False
    # A bookie that may have lost fences accepts no appends: see protocol rules 2.4 and 11.4.
    sound = cluster.plan.bookie_count - len(cluster.damaged)
    quorum = client.writes.metadata.quorum
    return quorum.is_in_sync and sound < quorum.min_in_sync


def _may_have_lost_entries(cluster: Cluster, ledger: LedgerModel) -> bool:
    """Return whether damaged bookies can hold all copies of an entry.

    Within the budget, this needs a recovery that closed an in-sync ledger with fewer members than
    `min_in_sync` (rule 11.5): until a repair, the end of the ledger has no other copies.
    """
    metadata = ledger.metadata
    if metadata is None:
        return False
    quorum = metadata.quorum
    for fragment in metadata.fragments:
        size = len(fragment.ensemble)
        is_short = quorum.is_in_sync and size < quorum.min_in_sync
        if not is_short and not cluster.plan.beyond_budget:
            continue
        acknowledging = copies_wanted(metadata, fragment, full=False)
        for first in range(0, size * quorum.stripe_entries, quorum.stripe_entries):
            members = write_set(metadata, fragment, first)
            if sum(not cluster.is_sound(member) for member in members) >= acknowledging:
                return True
    return False


async def _look_at(
    cluster: Cluster, client: LedgerClient, ledger: LedgerModel, *, is_demanded: bool
) -> None:
    """Recover and read a ledger.

    Unless progress is demanded, stop after a limited time: a call may wait for lost data until its
    deadline, which may be endless.
    """
    try:
        async with asyncio.timeout(None if is_demanded else UNDEMANDED_S):
            await _recover_and_read(cluster, client, ledger, is_demanded=is_demanded)
    except TimeoutError:
        cluster.model.note("inspection", f"ledger {ledger.ledger_id} is left as it is")


async def _recover_and_read(
    cluster: Cluster, client: LedgerClient, ledger: LedgerModel, *, is_demanded: bool
) -> None:
    where = f"ledger {ledger.ledger_id}"
    error = await _try(cluster, lambda: recover(cluster, client, ledger))
    is_in_sync = ledger.metadata is not None and ledger.metadata.quorum.is_in_sync
    if error is not None and is_in_sync and cluster.plan.beyond_budget:
        error = await _try(cluster, lambda: recover(cluster, client, ledger, is_unclean=True))
    if error is not None:
        if is_demanded:
            cluster.model.report(NAME, f"{where} could not be recovered after healing: {error}")
        return
    if is_demanded and _may_have_lost_entries(cluster, ledger):
        return
    error = await _try(cluster, lambda: _read_fully(cluster, client, ledger))
    if error is not None and is_demanded:
        cluster.model.report(NAME, f"{where} could not be read after healing: {error}")


async def _try(cluster: Cluster, act: Act) -> LedgerError | None:
    last: LedgerError | None = None
    for attempt in range(ATTEMPTS):
        try:
            await act()
        except LedgerError as error:
            note_error(cluster, "inspection", error)
            last = error
        else:
            return None
        if not cluster.plan.beyond_budget or attempt == 0:
            await asyncio.sleep(ATTEMPT_PAUSE_S)
    return last


async def _read_fully(cluster: Cluster, client: LedgerClient, ledger: LedgerModel) -> None:
    assert ledger.closed_at is not None
    count = await read_all(cluster, client, ledger)
    if count != ledger.closed_at + 1:
        text = f"{count} entries of ledger {ledger.ledger_id} were read, of {ledger.closed_at + 1}"
        cluster.model.report(NAME, text)
