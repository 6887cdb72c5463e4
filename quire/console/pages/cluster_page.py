"""Pages of the cluster: its health, its bookies, and what the loss of some of them would take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from metadata.ids import BookieId
from metadata.ledgers.copies import Loss
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from quire.console.context import Pages, Route
from quire.operate.as_json import state_of
from quire.operate.assessment import next_step
from quire.operate.faulty_servers import FaultyServer
from quire.operate.health import Health
from quire.operate.repair import read_summary
from quire.server.overriding import override

FINDINGS_SHOWN_MAX: Final = 100
COPIES: Final = {0: "no copy is certain", 1: "1 copy"}


@dataclass(frozen=True, slots=True)
class BookieRow:
    """What the page shows of one bookie."""

    bookie_id: BookieId
    registration: BookieRegistration | None
    """None if it is not up."""
    lifecycle: BookieLifecycle
    ledger_count: int | None
    """Ledgers with entries on it; None before the first check."""
    last: FaultyServer | None = None
    """Where it was, if it was down at the last check."""

    @property
    def state(self) -> str:
        """Its state in a word."""
        return state_of(self.registration, self.lifecycle.state)

    @property
    def used_percent(self) -> int | None:
        """Share of its disk that is used."""
        if self.registration is None or not self.registration.capacity_bytes:
            return None
        free = min(self.registration.free_bytes, self.registration.capacity_bytes)
        return 100 - 100 * free // self.registration.capacity_bytes

    @property
    def next_step(self) -> str:
        """What an operator does next; empty if nothing."""
        return next_step(self.bookie_id, self.lifecycle.state)


class ClusterPages(Pages):
    """Pages of the cluster."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (
            Route("GET", "/", self._cluster),
            Route("GET", "/if-lost", self._if_lost),
        )

    async def _cluster(self, request: web.Request) -> web.Response:
        context = self._context
        last = context.survey.last
        summary = await read_summary(context.cluster)
        health = None if last is None else last.health
        bookies = await self._rows(health)
        return context.page(
            request,
            "cluster.html",
            health=health,
            findings=[] if health is None else health.findings[:FINDINGS_SHOWN_MAX],
            warnings=[] if health is None else health.warnings[:FINDINGS_SHOWN_MAX],
            age_s=None if last is None else context.now_s - last.ended_s,
            survey=context.survey,
            bookies=bookies,
            tiles=_tiles(bookies, health),
            copies=_copies(health),
            repair=summary.sentence,
        )

    async def _rows(self, health: Health | None) -> list[BookieRow]:
        cluster = self._context.cluster
        up = cluster.directory.bookies
        states = {} if health is None else health.states
        known = await cluster.cookies.list_bookie_ids()
        ledgers = None if health is None else health.ledgers
        last = {} if health is None else {server.name: server for server in health.faulty}
        rows = [
            BookieRow(
                bookie,
                up.get(bookie),
                states.get(bookie, UNCHANGED),
                None if ledgers is None else ledgers.holding[bookie].count,
                last.get(bookie),
            )
            for bookie in sorted({*known, *up})
        ]
        return [row for row in rows if row.lifecycle.state is not Lifecycle.REMOVED]

    async def _if_lost(self, request: web.Request) -> web.Response:
        context, last = self._context, self._context.survey.last
        ticked = {BookieId(name) for name in request.query.getall("bookie", [])}
        rows = await self._rows(None if last is None else last.health)
        if unknown := sorted(ticked - {row.bookie_id for row in rows}):
            raise web.HTTPBadRequest(text=f"there is no bookie {unknown[0]}")
        up = context.cluster.directory.bookies
        left = [bookie for bookie in up if bookie not in ticked]
        in_limbo = [row.bookie_id for row in up.values() if row.is_in_limbo]
        shapes = None if last is None else last.shapes
        return context.page(
            request,
            "if_lost.html",
            bookies=rows,
            ticked=ticked,
            left=len(left),
            losses=None if shapes is None else shapes.losses(left, in_limbo),
            kinds=list(Loss),
            ledger_count=0 if shapes is None else sum(shapes.ledgers.values()),
            left_out=0 if shapes is None else shapes.left_out,
            age_s=None if last is None else context.now_s - last.ended_s,
        )


def _tiles(bookies: Sequence[BookieRow], health: Health | None) -> list[tuple[str, str]]:
    """Return the figures above all tables, with their names."""
    up = sum(bookie.registration is not None for bookie in bookies)
    used = [bookie.used_percent for bookie in bookies if bookie.used_percent is not None]
    tiles = [("Bookies up", f"{up} of {len(bookies)}")]
    if used:
        tiles.append(("Fullest disk", f"{max(used)} %"))
    if health is not None and health.ledgers is not None:
        tiles.append(("Ledgers", f"{sum(health.ledgers.by_state.values()):,}"))
        fewest = min(health.ledgers.certain_copies, default=None)
        if fewest is not None:
            tiles.append(("Fewest certain copies", str(fewest)))
    return tiles


def _copies(health: Health | None) -> Iterable[tuple[str, int]]:
    """Return how many ledgers have how many certain copies, the fewest first."""
    if health is None or health.ledgers is None:
        return []
    counts = sorted(health.ledgers.certain_copies.items())
    return [(COPIES.get(copies, f"{copies} copies"), ledgers) for copies, ledgers in counts]
