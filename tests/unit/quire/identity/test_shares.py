"""Places that clients share, and turns of those that wait for one."""

import asyncio

import pytest

from quire.identity.shares import FairQueue, QueueFullError, Shares, network_of


def test_a_holder_has_at_most_its_share() -> None:
    shares = Shares(3, 2)
    assert [shares.take("a") for _ in range(3)] == [True, True, False]
    assert (shares.take("b"), shares.take("c")) == (True, False)
    assert (len(shares), shares.has_free()) == (3, False)
    shares.give_back("a")
    assert shares.take("c")


def test_several_places_are_taken_together_or_not_at_all() -> None:
    shares = Shares(10, 6)
    assert shares.take("a", 5)
    assert not shares.take("a", 2)
    assert (shares.has_free(5), shares.has_share("b", 6)) == (True, False)
    shares.give_back("a", 5)
    assert (len(shares), shares.take("b", 6)) == (0, True)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_all_addresses_of_an_ipv6_network_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network


class Requests:
    """Requests that hold their place until they are told to end."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self._ends: list[asyncio.Event] = []
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, holder: str, count: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(self._hold(holder)) for _ in range(count)]
        await asyncio.sleep(0)

    async def end_one(self) -> None:
        self._ends.pop(0).set()
        for _ in range(3):
            await asyncio.sleep(0)

    async def _hold(self, holder: str) -> None:
        async with self._queue.place(holder):
            end = asyncio.Event()
            self._ends.append(end)
            self.served.append(holder)
            await end.wait()


async def test_holders_take_turns() -> None:
    requests = Requests(FairQueue(2, 2, 100))
    await requests.ask("flood", 50)
    await requests.ask("a", 2)
    await requests.ask("b")
    for _ in range(5):
        await requests.end_one()
    assert requests.served == ["flood", "flood", "flood", "a", "b", "flood", "a"]


async def test_a_share_leaves_places_free_for_others() -> None:
    requests = Requests(FairQueue(4, 2, 100))
    await requests.ask("flood", 50)
    await requests.ask("a")
    assert requests.served == ["flood", "flood", "a"]
    await requests.end_one()
    assert requests.served[3:] == ["flood"]


async def test_waiting_requests_are_bounded() -> None:
    queue = FairQueue(1, 1, 2)
    requests = Requests(queue)
    await requests.ask("flood", 3)
    with pytest.raises(QueueFullError, match="2 requests"):
        async with queue.place("flood"):
            pass
    await requests.ask("a")
    await requests.end_one()
    await requests.end_one()
    assert requests.served == ["flood", "flood", "a"]


async def test_a_cancelled_request_leaves_its_place() -> None:
    requests = Requests(FairQueue(1, 1, 9))
    await requests.ask("a", 2)
    await requests.ask("b", 2)
    _, waiting, first, _ = requests.tasks
    waiting.cancel()
    await asyncio.sleep(0)
    requests._ends.pop(0).set()
    await asyncio.sleep(0)  # the place goes to the first request of b, which is cancelled now
    first.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert requests.served == ["a", "b"]


async def test_requests_that_are_cancelled_together_take_no_places() -> None:
    queue = FairQueue(10, 10, 9)
    assert queue.take("other", 5)
    waiting = [asyncio.create_task(queue.wait("a", count)) for count in (8, 3, 3, 4)]
    await asyncio.sleep(0.01)
    for task in waiting[:3]:
        task.cancel()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(exception, asyncio.CancelledError) for exception in found[:3])
    assert found[3] is None, "what waits behind them is served"
    assert len(queue) == 5 + 4
    assert not queue.is_waited_for


async def test_a_place_stays_taken_after_its_use_and_delays_no_other_holder() -> None:
    queue = FairQueue(2, 1, 100)
    async with queue.place("flood") as place:
        place.kept_s = 0.01
    again = asyncio.get_running_loop().create_task(_use(queue, "flood"))
    await asyncio.sleep(0)
    async with queue.place("other"):
        assert not again.done(), "its place is still taken"
    await again


async def _use(queue: FairQueue, holder: str) -> None:
    async with queue.place(holder):
        pass
