"""The watchdog suspects a silent or late bookie while others answer, and rests while nothing is
pending (rule 5.7).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random

import pytest
from typing_extensions import override

from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from ledger_client.observability import BookieSuspected, ClientEvent, Observer
from ledger_client.protocol.suspicion import RecentLatency
from ledger_client.writing.pacing import Call, Slices
from ledger_client.writing.watchdog import WATCH_PERIOD_S, Watchdog
from metadata.ids import BookieId, LedgerId
from tests.support.metadata.samples import A, B, C
from tests.until import until
from tests.virtual_time import VirtualTimeLoop

CONFIG = ClientConfig()
LEAST_S = CONFIG.suspect_after_min_s
LONG_S = 100.0


class Nowhere:
    """Addresses of no bookie."""

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        return None


class ScriptedPool(BookiePool):
    """Pool of three bookies: B answers each add at once, and a test decides what A and C do."""

    def __init__(self) -> None:
        super().__init__(Nowhere(), config=CONFIG, rng=Random(1))
        self.unanswered: dict[BookieId, float] = {}
        self.answered: dict[BookieId, float] = {}
        self.latencies = {bookie_id: RecentLatency() for bookie_id in (A, B, C)}
        self.look_count = 0

    @property
    @override
    def bookie_ids(self) -> tuple[BookieId, ...]:
        self.look_count += 1
        return A, B, C

    @override
    def oldest_unanswered_since(self, bookie_id: BookieId) -> float | None:
        return self.unanswered.get(bookie_id)

    @override
    def add_answered_at(self, bookie_id: BookieId) -> float | None:
        if bookie_id == B:
            return asyncio.get_running_loop().time()
        return self.answered.get(bookie_id)

    @override
    def add_latency(self, bookie_id: BookieId) -> RecentLatency:
        return self.latencies[bookie_id]


class CountedSlices(Slices):
    """Slices of one call, with a pause before each; without a pause, one slice makes all calls."""

    def __init__(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()

        def call_soon(run: Call) -> None:
            loop.call_later(pause_s, run)

        super().__init__(0.0 if pause_s else 1.0, loop.time, call_soon)
        self.round_count = 0

    @override
    def each(self, calls: Iterable[Call]) -> None:
        self.round_count += 1
        super().each(calls)


class Writer:
    """Writer that waits for some bookies until it suspects them."""

    def __init__(self, ledger_id: int, *waits_for: BookieId) -> None:
        self.ledger_id = LedgerId(ledger_id)
        self.waits_for = dict.fromkeys(waits_for)
        self.suspected: list[tuple[BookieId, float]] = []
        self.next_check_s: float | None = LONG_S
        self.check_count = 0
        self.asked_count = 0
        self.on_check: Callable[[], None] | None = None
        self.needs_all = True

    def check(self, now: float) -> float | None:
        self.check_count += 1
        if self.on_check is not None:
            self.on_check()
        return None if self.next_check_s is None else now + self.next_check_s

    def may_suspect(self, bookie_id: BookieId, *, is_late: bool) -> bool:
        self.asked_count += 1
        return bookie_id in self.waits_for and (self.needs_all or not is_late)

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        del self.waits_for[bookie_id]
        self.suspected.append((bookie_id, silent_s))

    @property
    def suspects(self) -> list[BookieId]:
        return [bookie_id for bookie_id, _ in self.suspected]


class World:
    """Watchdog of active writers."""

    def __init__(
        self, *writers: Writer, suspicions_per_minute_max: int = 6, pause_s: float = 0.0
    ) -> None:
        self.events: list[ClientEvent] = []
        self.pool = ScriptedPool()
        self.slices = CountedSlices(pause_s)
        config = ClientConfig(suspicions_per_minute_max=suspicions_per_minute_max)
        observer = Observer(self.events.append)
        self.watchdog = Watchdog(self.pool, config, observer, self.slices)
        for writer in writers:
            self.watchdog.activate(writer, 0.0)

    def silence(self, bookie_id: BookieId) -> None:
        self.pool.unanswered[bookie_id] = asyncio.get_running_loop().time()


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a test in virtual time; fail it if a call of the watchdog raised."""
    errors: list[object] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
        runner.run(main())
    assert errors == []


def test_each_writer_that_waits_for_a_silent_bookie_suspects_it() -> None:
    async def main() -> None:
        waiting, idle = [Writer(1, A), Writer(2, A)], Writer(3)
        world = World(*waiting, idle)
        await asyncio.sleep(1.0)
        world.silence(A)
        await asyncio.sleep(0.9 * LEAST_S)
        assert world.events == []
        await asyncio.sleep(LEAST_S)
        for writer in waiting:
            ((bookie_id, silent_s),) = writer.suspected
            assert bookie_id == A
            assert LEAST_S < silent_s <= LEAST_S + 2 * WATCH_PERIOD_S
            assert BookieSuspected(writer.ledger_id, A, silent_s) in world.events
        assert idle.suspected == []
        assert len(world.events) == 2

    run(main)


def test_the_silence_that_is_allowed_grows_with_the_latency_of_others() -> None:
    async def main() -> None:
        writer = Writer(1, A)
        world = World(writer)
        world.pool.latencies[B].record(0.1)
        await asyncio.sleep(1.0)
        world.silence(A)
        await asyncio.sleep(0.1 * CONFIG.suspect_after_multiple)
        assert writer.suspected == []
        await asyncio.sleep(0.3)
        assert writer.suspects == [A]

    run(main)


def test_suspicions_are_limited_by_the_minute_and_not_by_the_number_of_writers() -> None:
    async def main() -> None:
        writers = [Writer(number, A, C) for number in range(3)]
        world = World(*writers, suspicions_per_minute_max=1)
        await asyncio.sleep(1.0)
        world.silence(A)
        world.silence(C)
        await asyncio.sleep(50.0)
        assert [writer.suspects for writer in writers] == [[A]] * 3
        await asyncio.sleep(12.0)
        assert [writer.suspects for writer in writers] == [[A, C]] * 3

    run(main)


def test_writers_are_not_asked_once_the_limit_is_reached() -> None:
    async def main() -> None:
        writers = [Writer(number, A) for number in range(5)]
        world = World(*writers, suspicions_per_minute_max=0)
        await asyncio.sleep(1.0)
        world.silence(A)
        await asyncio.sleep(1.0)
        assert writers[0].asked_count > 1
        assert [writer.asked_count for writer in writers[1:]] == [0] * 4

    run(main)


def test_a_bookie_that_stays_silent_is_suspected_again() -> None:
    async def main() -> None:
        writer = Writer(1, A)
        world = World(writer)
        await asyncio.sleep(1.0)
        world.silence(A)
        await until(lambda: writer.suspects == [A])
        writer.waits_for[A] = None
        await until(lambda: writer.suspects == [A, A])

    run(main)


@pytest.mark.parametrize("answer", ["all", "the oldest", "a later one"])
def test_an_answer_ends_a_round_of_suspicions(answer: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        writers = [Writer(number, A) for number in range(5)]
        world = World(*writers, pause_s=0.03)
        await asyncio.sleep(1.0)
        world.silence(A)
        await until(lambda: len(world.events) == 1)
        if answer == "all":
            del world.pool.unanswered[A]
        elif answer == "the oldest":
            world.silence(A)
        else:
            world.pool.answered[A] = loop.time()
        await asyncio.sleep(0.95 * LEAST_S)
        assert [writer.suspects for writer in writers] == [[A], [], [], [], []]

    run(main)


def test_silence_since_an_answer_counts_from_the_answer() -> None:
    async def main() -> None:
        writer = Writer(1, A)
        world = World(writer)
        await asyncio.sleep(1.0)
        world.silence(A)
        await asyncio.sleep(0.1)
        world.pool.answered[A] = asyncio.get_running_loop().time()
        await asyncio.sleep(0.9 * LEAST_S)
        assert writer.suspected == []
        await asyncio.sleep(LEAST_S)
        ((_, silent_s),) = writer.suspected
        assert LEAST_S < silent_s <= LEAST_S + 2 * WATCH_PERIOD_S

    run(main)


def test_a_bookie_whose_answers_are_late_is_suspected_where_every_append_needs_it() -> None:
    """Its packets are lost: it answers every 100 ms, and each answer took half a second."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting, other = Writer(1, A), Writer(2, A)
        other.needs_all = False
        world = World(waiting, other)
        for _ in range(100):
            world.pool.unanswered[A] = loop.time() - 0.5
            world.pool.answered[A] = loop.time()
            await asyncio.sleep(0.1)
        assert waiting.suspects == [A]
        assert other.suspected == []

    run(main)


def test_a_long_round_of_suspicions_is_one() -> None:
    async def main() -> None:
        writers = [Writer(number, A, C) for number in range(5)]
        world = World(*writers, suspicions_per_minute_max=2, pause_s=2 * WATCH_PERIOD_S)
        await asyncio.sleep(1.0)
        world.silence(A)
        await until(lambda: len(world.events) == 2)
        world.silence(C)
        await asyncio.sleep(3.0)
        assert [sorted(writer.suspects) for writer in writers] == [[A, C]] * 5

    run(main)


def test_a_long_round_of_checks_is_one() -> None:
    async def main() -> None:
        writer = Writer(1)
        world = World(writer, pause_s=10 * WATCH_PERIOD_S)
        await asyncio.sleep(9 * WATCH_PERIOD_S)
        assert (writer.check_count, world.slices.round_count) == (0, 1)
        await asyncio.sleep(15 * WATCH_PERIOD_S)
        assert (writer.check_count, world.slices.round_count) == (1, 2)

    run(main)


def test_bookies_are_observed_once_in_a_period_while_a_writer_has_pending_work() -> None:
    async def main() -> None:
        first, second = Writer(1), Writer(2)
        world = World(first, second)
        await asyncio.sleep(1.0)
        periods = 1.0 / WATCH_PERIOD_S
        assert periods - 2 <= world.pool.look_count <= periods + 1
        for writer in (first, second):
            writer.next_check_s = None
            world.watchdog.activate(writer, 0.0)
        await asyncio.sleep(3 * WATCH_PERIOD_S)
        looked = world.pool.look_count
        await asyncio.sleep(10.0)
        assert world.pool.look_count == looked
        world.watchdog.activate(first, 0.0)
        await asyncio.sleep(3 * WATCH_PERIOD_S)
        assert first.check_count == 3
        assert second.check_count == 2

    run(main)


def test_nothing_is_checked_or_observed_after_the_end() -> None:
    async def main() -> None:
        World().watchdog.close()
        first, second = Writer(1), Writer(2)
        world = World(first, second)
        first.on_check = world.watchdog.close
        await asyncio.sleep(1.0)
        assert (first.check_count, second.check_count) == (1, 0)
        assert world.pool.look_count == 1

    run(main)


def test_a_pause_of_this_process_is_not_silence_of_a_bookie() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        writer = Writer(1, A)
        world = World(writer)
        await asyncio.sleep(1.0)
        world.silence(A)
        await asyncio.sleep(0.01)
        loop.advance(10 * LEAST_S)

        def read_answers() -> None:
            del world.pool.unanswered[A]

        loop.call_later(WATCH_PERIOD_S / 2, read_answers)
        await asyncio.sleep(10.0)
        assert writer.suspected == []
        world.silence(A)
        await until(lambda: writer.suspects == [A])

    run(main)
