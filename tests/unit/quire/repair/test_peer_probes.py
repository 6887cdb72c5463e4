"""Each process of repair probes some bookies, and reports those that do not answer."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from bookie.wire.messages import Pong
from ledger_client.bookies.pool import BookieCallError, BookiePool
from metadata.ids import BookieId
from metadata.repair.workers import WorkerReport
from quire.repair.peer_probes import PROBED_MAX, PeerProbes, bookies_to_probe
from quire.server.server_log import ServerLog
from tests.simulation.loop import run_simulation

if TYPE_CHECKING:
    from metadata.registry.directory import BookieDirectory

A, B = BookieId("a"), BookieId("b")


def test_each_process_probes_some_and_each_bookie_is_probed() -> None:
    up = [BookieId(f"bookie-{number}") for number in range(200)]
    chosen = [bookies_to_probe(f"repair-{number}", up) for number in range(200)]
    assert all(len(probed) == PROBED_MAX for probed in chosen)
    assert len({bookie_id for probed in chosen for bookie_id in probed}) == len(up)
    assert chosen[0] == bookies_to_probe("repair-0", up)
    assert bookies_to_probe("repair-0", up[:3]) == up[:3]


class Pool:
    """Pool in which some bookies do not answer."""

    def __init__(self) -> None:
        self.silent: set[BookieId] = set()

    async def ping(self, bookie_id: BookieId, *, timeout_s: float) -> Pong:
        if bookie_id in self.silent:
            raise BookieCallError(bookie_id, f"no answer in {timeout_s} s")
        return Pong(True, 0)


def test_a_bookie_is_reported_after_two_failures_until_it_answers() -> None:
    async def story() -> None:
        pool, reports = Pool(), list[WorkerReport]()
        up = {A: "registered", B: "registered"}
        directory = cast("BookieDirectory", SimpleNamespace(bookies=up))
        probes = PeerProbes(
            "repair-1",
            "h1",
            cast("BookiePool", pool),
            directory,
            reports.append,
            ServerLog(lambda: 0.0),
        )
        pool.silent = {B}
        for _ in range(3):
            await probes.probe()
        assert [report.unreached for report in reports] == [(), (B,), (B,)]
        pool.silent = set()
        await probes.probe()
        assert reports[-1] == WorkerReport("h1", ())
        pool.silent = {A}
        await probes.probe()
        del up[A]  # it is down now, and that is said elsewhere
        await probes.probe()
        assert reports[-1].unreached == ()

    run_simulation(story, 1)
