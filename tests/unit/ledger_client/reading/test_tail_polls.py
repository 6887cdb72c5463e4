"""Which bookies a tail polls and when, and what ends a wait (rules 8.4 and 8.5)."""

import asyncio
import gc
import tracemalloc
import weakref
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from bookie.wire.messages import Status, WaitLac
from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.errors import UnauthorizedError
from ledger_client.reading.tailing import QUICK_S, SILENCE_S, TailPoller
from metadata.ids import EntryId
from metadata.ledgers.copies import write_set
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.ledger_world import LEDGER
from tests.support.ledger_client.memory_bookies import DEFAULT_DELAY_S
from tests.support.ledger_client.tail_world import BYTES_MAX, POLL_S, READ_S, Tail, end, run

FIRST_PAUSE_S, PAUSE_MAX_S = 0.01, 0.5


# -- polls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_one_bookie_is_polled_at_first(seed: int) -> None:
    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(SILENCE_S / 2)
        request = WaitLac(LEDGER, EntryId(-1), int(POLL_S * 1000), BYTES_MAX)
        assert tail.bookies.noted == [(0.0, tail.preferred, request, POLL_S + READ_S)]
        await end(waiting)

    run(scenario, seed=seed)


@pytest.mark.parametrize(
    ("quorum", "polled"),
    [((3, 3, 3), 2), ((3, 3, 2), 2), ((3, 3, 1), 3), ((2, 2, 1), 2), ((1, 1, 1), 1)],
)
def test_more_bookies_are_polled_in_silence(quorum: tuple[int, ...], polled: int) -> None:
    """So many that one of them has any acknowledged entry, and two at least. Only the first one
    returns entries.
    """

    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(5 * SILENCE_S)
        assert tail.bookies.times == [SILENCE_S * number for number in range(polled)]
        assert len(set(tail.bookies.names)) == polled
        sizes = [request.bytes_max for _, _, request, _ in tail.bookies.noted]
        assert sizes == [BYTES_MAX, 0, 0][:polled]
        await end(waiting)

    run(scenario, quorum=quorum)


@pytest.mark.parametrize("lac", [-1, 0, 1, 2, 3, 4, 17])
def test_only_bookies_of_the_next_entry_and_the_next_stripe_are_polled(lac: int) -> None:
    async def scenario(tail: Tail) -> None:
        tail.ledger.advance_lac(EntryId(lac))
        metadata = tail.world.metadata
        holders = write_set(metadata.quorum, metadata.last_fragment, EntryId(lac + 1))
        ahead = write_set(metadata.quorum, metadata.last_fragment, EntryId(lac + 2))
        waiting = await tail.still_waits(SILENCE_S / 2)
        wanted = tail.preferred if tail.preferred in holders else holders[0]
        sizes = {name: request.bytes_max for _, name, request, _ in tail.bookies.noted}
        extra = {} if wanted in ahead else {ahead[-1]: 0}
        assert sizes == {wanted: BYTES_MAX} | extra
        await asyncio.sleep(5 * SILENCE_S)
        assert set(holders) <= set(tail.bookies.names) <= {*holders, *ahead}
        assert len(tail.bookies.names) == len(set(tail.bookies.names))
        await end(waiting)

    for seed in range(5):
        run(scenario, quorum=(5, 3, 1, 1), seed=seed)


def test_after_a_failed_poll_the_next_bookie_is_polled_after_a_growing_pause() -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.fail("abc")
        waiting = await tail.still_waits(20.0)
        names, times = tail.bookies.names, tail.bookies.times
        cycle = "abc" * len(names)
        start = "abc".index(tail.preferred)
        assert "".join(names) == cycle[start : start + len(names)]
        pauses = [b - a - DEFAULT_DELAY_S for a, b in pairwise(times)]
        bounds = [min(PAUSE_MAX_S, FIRST_PAUSE_S * 2**number) for number in range(len(pauses))]
        for pause, bound in zip(pauses, bounds, strict=True):
            assert bound / 2 - 1e-9 <= pause <= bound + 1e-9
        assert len(pauses) > 20
        await end(waiting)

    run(scenario)


@pytest.mark.parametrize(("delay_s", "has_pause"), [(QUICK_S, False), (1.0, False), (0.019, True)])
def test_a_poll_that_took_its_time_is_followed_by_the_next_at_once(
    delay_s: float, *, has_pause: bool
) -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.fail("abc")
        for name in "abc":
            tail.bookies[name].delay_s = delay_s
        waiting = await tail.still_waits(0.49 + delay_s)
        lag = tail.bookies.times[-1 if delay_s > SILENCE_S else 1] - delay_s
        assert (lag > 0) == has_pause
        await end(waiting)

    run(scenario)


def test_answers_without_progress_are_followed_by_pauses_and_other_bookies() -> None:
    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(20.0)
        names = tail.bookies.names
        start = "abc".index(tail.preferred)
        assert "".join(names) == ("abc" * len(names))[start : start + len(names)]
        assert 40 < len(names) < 80
        await end(waiting)

    run(scenario, long_poll_s=0.01)


def test_pauses_are_short_again_after_progress() -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.fail("abc")
        waiting = await tail.still_waits(10.0)
        for name in "abc":
            tail.bookies[name].failure = None
        tail.write(0, 5)
        assert [tail.checked(batch) for batch in await waiting] == [(0, 4)]
        answered = tail.bookies.names[-1]
        tail.bookies.fail("abc")
        waiting = await tail.still_waits(1.0)
        index = [time > 10.0 for time in tail.bookies.times].index(True) + 1
        while tail.bookies.times[index - 1] < tail.bookies.times[index] - PAUSE_MAX_S / 2:
            index += 1
        times = tail.bookies.times[index:]
        assert tail.bookies.names[index] == answered, "it has the next entry most likely"
        assert times[1] - times[0] - DEFAULT_DELAY_S < FIRST_PAUSE_S
        await end(waiting)

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_the_bookie_that_had_the_news_is_polled_again(seed: int) -> None:
    async def scenario(tail: Tail) -> None:
        tail.write(0, 1, lac=-1)
        tail.bookies.fail(tail.preferred, CallFailure.TIMEOUT)
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        silent, second = tail.bookies.names
        assert silent == tail.preferred
        tail.bookies[second].advance(0)
        assert await waiting == ()
        assert tail.ledger.last_confirmed == 0
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        assert tail.bookies.names == [silent, second, second]
        await end(waiting)

    run(scenario, quorum=(3, 3, 2, 1), seed=seed)


# -- other ends of a wait --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["lac", "ensemble", "deletion", "wake"])
def test_a_change_ends_the_wait_at_once(what: str) -> None:
    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(0.1)
        if what == "lac":
            tail.ledger.advance_lac(EntryId(3))
        elif what == "ensemble":
            await tail.change(5, "abd")
        elif what == "deletion":
            await tail.world.ledgers.delete(LEDGER)
        else:
            tail.poller.wake()
        assert await waiting == ()
        assert simulation_loop().time() < 0.2
        if what == "wake":
            assert await tail.poller.wait() == ()

    run(scenario)


def test_a_new_ensemble_is_polled_at_once_and_the_old_one_no_more() -> None:
    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        assert len(tail.bookies.noted) == 2
        await tail.change(5, "def")
        assert await waiting == ()
        changed_s = simulation_loop().time()
        waiting = await tail.still_waits(3 * SILENCE_S)
        assert set(tail.bookies.names[2:]) < set("def")
        assert tail.bookies.times[2:] == pytest.approx([changed_s, changed_s + SILENCE_S])
        assert len([task for task in asyncio.all_tasks() if "_poll" in repr(task)]) == 2
        await end(waiting)

    run(scenario)


def test_the_end_of_a_poll_of_the_old_ensemble_is_ignored() -> None:
    """It came while no caller waited."""

    async def scenario(tail: Tail) -> None:
        tail.write(0, 5, lac=-1)
        first = tail.preferred
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        tail.bookies[tail.bookies.names[1]].advance(2)
        assert await waiting == ()
        tail.bookies[first].advance(4)
        await asyncio.sleep(0.1)
        await tail.change(5, first + "de")
        await asyncio.sleep(0.1)
        assert tail.ledger.last_confirmed == 4
        count = len(tail.bookies.noted)
        waiting = await tail.still_waits(POLL_S / 2)
        assert len(tail.bookies.noted) == count + 2
        await end(waiting)

    run(scenario)


def test_a_bookie_that_left_the_ensemble_gives_its_place_to_the_first_of_the_new_one() -> None:
    """The end of its poll came while no caller waited."""

    async def scenario(tail: Tail) -> None:
        for number in range(4):
            tail.write(number, 1, lac=-1)
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        first, second = tail.bookies.names
        tail.bookies[second].advance(3)
        assert await waiting == ()
        tail.bookies.fail(first)
        tail.bookies[first].advance(3)
        await asyncio.sleep(0.1)
        await tail.change(4, "def")
        await asyncio.sleep(0.1)
        waiting = await tail.still_waits(1.5 * SILENCE_S)
        assert tail.bookies.names[2:] == ["e", "f"], "e is the first bookie of entry 4"
        await end(waiting)

    run(scenario, quorum=(3, 3, 2, 1))


def test_a_new_lac_at_the_time_of_a_refusal_ends_the_wait() -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.refused = Status.UNKNOWN
        for lac in range(20):
            tail.bookies.meanwhile = partial(tail.ledger.advance_lac, EntryId(lac))
            assert await tail.poller.wait() == ()
            assert tail.ledger.last_confirmed == lac

    run(scenario)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_refused_password_is_an_error(*, is_late: bool) -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.refused = Status.UNAUTHORIZED
        if is_late:
            await asyncio.sleep(3.0)
        with pytest.raises(UnauthorizedError, match="refused the password") as raised:
            await tail.poller.wait()
        assert raised.value.ledger_id == LEDGER

    run(scenario)


def test_another_refusal_is_a_failed_poll() -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.refused = Status.UNKNOWN
        waiting = await tail.still_waits(2.0)
        assert set(tail.bookies.names) == set("abc")
        await end(waiting)

    run(scenario)


def test_a_closed_poller_is_not_called_any_more() -> None:
    async def scenario(tail: Tail) -> None:
        keys, pool = tail.world.keys, tail.bookies.pool
        poller = TailPoller(tail.ledger, keys, pool, ClientConfig(), Random(1))
        await poller.aclose()
        kept = weakref.ref(poller)
        del poller
        gc.collect()
        assert kept() is None

    run(scenario)


def test_news_between_two_waits_is_not_kept_one_by_one() -> None:
    """A reader that reads older entries learns of each move of the LAC."""

    async def scenario(tail: Tail) -> None:
        tail.ledger.advance_lac(EntryId(0))
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for entry_id in range(1, 20_000):
                tail.ledger.advance_lac(EntryId(entry_id))
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 20_000

    run(scenario)
