"""Whether the copies of a bookie count."""

from random import Random

from broker_layer.control.bookie_states import AWAY, LIMBO, LOST, REMOVED
from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from tests.support.broker_layer.control_setting import Setting
from tests.until import until


async def test_copies_count_by_registration_and_state(setting: Setting) -> None:
    broker = await setting.broker(1)
    (bookie,) = setting.cluster.bookies
    store, states = LifecycleStore(broker.store, Random(1)), broker.states
    bookie_id = BookieId(bookie.id)

    async def become(to: Lifecycle, expected: str) -> None:
        await store.change(bookie_id, to, "a test", 1)
        await until(lambda: broker.lifecycles.of(bookie_id).state is to)
        assert states.why_short(bookie_id) == expected

    assert (states.why_short(bookie_id), states.any_short) == ("", False)
    await become(Lifecycle.DRAINING, "")
    assert states.is_leaving(bookie_id)
    await become(Lifecycle.LIMBO, LIMBO)
    assert states.any_short is False, "the bookie has no cookie in this test, and never left"
    await bookie.unregister()
    await until(lambda: states.any_short)
    assert states.why_short(bookie_id) == AWAY
    await become(Lifecycle.LOST, LOST)
    await store.change(bookie_id, Lifecycle.DRAINED, "a test", 1)
    await become(Lifecycle.REMOVED, REMOVED)
    assert not states.any_short, "nothing names a bookie that is removed"


async def test_a_bookie_that_was_away_before_the_broker_began_is_known(setting: Setting) -> None:
    broker = await setting.broker(1)
    assert not broker.states.any_short
    await broker.store.create("/cookies/bookie-9", b"")
    await until(lambda: broker.states.any_short)
    assert broker.states.why_short(BookieId("bookie-9")) == AWAY
