"""Tests of lost watch events of the simulated metadata service."""

import asyncio
from functools import partial
from typing import Final

from metadata.ids import Version
from metadata.store.interface import SessionState
from metadata.store.memory import MemoryMetadataServer
from tests.simulation.loop import run_simulation
from tests.simulation.store import NodeStore, SimulatedStoreFaults, StoreOdds

PATH: Final = "/watched"
SEEDS: Final = 20
ENOUGH_S: Final = 60.0
"""Virtual time after which all events have arrived, in seconds."""


class Watched:
    """A node that one session watches and another changes; records what the first sees."""

    def __init__(self, seed: int, odds: StoreOdds, *, session_timeout_s: float = 10.0) -> None:
        self.faults = SimulatedStoreFaults(seed, odds)
        server = MemoryMetadataServer(self.faults)
        self.watching, self.changing = (
            NodeStore(server, self.faults, session_timeout_s=session_timeout_s) for _ in range(2)
        )
        self.told: list[str] = []
        self.reads: list[asyncio.Task[bytes]] = []

    async def begin(self) -> None:
        """Create the node, then watch it."""
        await self.changing.create(PATH, b"0")
        await self.watching.get(PATH, fresh=True)
        self.watching.on_session(lambda state: self.told.append(state.value))
        self.watching.watch_value(PATH, self._on_watch)

    async def change(self, number: int) -> None:
        """Write a number over the previous one."""
        await self.changing.compare_and_set(PATH, b"%d" % number, Version(number - 1))

    async def found(self) -> list[bytes]:
        """Return the values read after each call of the watch, once all calls have come."""
        await asyncio.sleep(ENOUGH_S)
        return [await read for read in self.reads]

    def _on_watch(self) -> None:
        self.told.append("changed")
        self.reads.append(asyncio.ensure_future(self._read()))

    async def _read(self) -> bytes:
        return (await self.watching.get(PATH)).value


def test_a_lost_event_breaks_the_connection_and_the_next_one_reports_it() -> None:
    async def main() -> None:
        watched = Watched(1, StoreOdds(lost_watch_share=1.0))
        await watched.begin()
        await watched.change(1)
        assert (await watched.found())[-1] == b"1"
        assert watched.told == ["suspended", "connected", "changed", "changed"]
        assert watched.faults.lost_watch_count == 1
        assert watched.watching.session_id == 1, "the session outlived its connection"

    run_simulation(main, 1)


def test_changes_before_the_next_connection_are_reported_once() -> None:
    async def main() -> None:
        watched = Watched(1, StoreOdds(lost_watch_share=1.0, reconnect_delay_s_max=8.0))
        await watched.begin()
        await watched.change(1)
        while watched.watching.is_connected:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)
        await watched.change(2)
        assert watched.watching.session_state is SessionState.SUSPENDED
        await watched.change(3)
        assert watched.told == ["suspended"]
        assert (await watched.found())[-1] == b"3"
        assert watched.faults.lost_watch_count == 1

    run_simulation(main, 3)


def test_changes_before_an_expiry_are_reported_by_a_new_session() -> None:
    async def main() -> None:
        odds = StoreOdds(lost_watch_share=1.0, reconnect_delay_s_max=40.0)
        watched = Watched(2, odds, session_timeout_s=0.5)
        await watched.begin()
        await watched.change(1)
        assert (await watched.found())[-1] == b"1"
        assert watched.told[:3] == ["suspended", "expired", "connected"]
        assert watched.watching.session_id > 2

    run_simulation(main, 1)


def test_an_event_in_flight_is_lost_with_its_connection() -> None:
    async def main() -> None:
        watched = Watched(1, StoreOdds(watch_delay_s=1.0))
        await watched.begin()
        await watched.change(1)
        watched.watching.suspend()
        await asyncio.sleep(2.0)
        assert "changed" not in watched.told
        watched.watching.resume()
        assert (await watched.found())[-1] == b"1"
        assert watched.told == ["suspended", "connected", "changed", "changed"]

    run_simulation(main, 1)


def test_a_lagging_server_reports_again_when_it_has_caught_up() -> None:
    """Otherwise a process that reads an old state after its reconnection would never see a newer
    one.
    """
    first: list[bytes] = []

    async def main(seed: int) -> None:
        odds = StoreOdds(lost_watch_share=1.0, stale_share=0.5, watch_delay_s=1.0)
        watched = Watched(seed, odds)
        await watched.begin()
        await watched.change(1)
        found = await watched.found()
        assert found[-1] == b"1"
        first.append(found[0])

    for seed in range(SEEDS):
        run_simulation(partial(main, seed), seed)
    assert b"0" in first, "the first read after a reconnection may be old"


def test_a_read_may_have_missed_changes_until_its_server_left_the_replaced_leader() -> None:
    async def main() -> None:
        watched = Watched(1, StoreOdds())
        await watched.begin()
        assert not watched.faults.may_have_missed_changes(0.0)
        watched.watching.follow_replaced_leader()
        assert watched.faults.may_have_missed_changes(0.0)
        await asyncio.sleep(1.0)
        watched.watching.leave_replaced_leader()
        left_s = asyncio.get_running_loop().time()
        assert watched.faults.may_have_missed_changes(left_s)
        assert not watched.faults.may_have_missed_changes(left_s + 0.1)

    run_simulation(main, 1)
