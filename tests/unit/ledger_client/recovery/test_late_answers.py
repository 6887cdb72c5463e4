"""A recovery whose time is up says what it may have changed (rules 1.3 and 7.1)."""

import asyncio

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import LedgerError, MetadataUnavailableError, QuorumTimeoutError
from metadata.errors import StoreRefusedError
from metadata.ids import Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from tests.support.ledger_client.ledger_world import LEDGER, payloads
from tests.support.ledger_client.recovery_world import World, run


def hold_back(monkeypatch: pytest.MonkeyPatch, state: LedgerState, *, applied: bool) -> None:
    """Let no answer to a change to `state` arrive, whether or not it is applied."""
    plain = LedgerStore.compare_and_set

    async def held(self: LedgerStore, metadata: LedgerMetadata, expected: Version) -> Version:
        if metadata.state is not state:
            return await plain(self, metadata, expected)
        if applied:
            await plain(self, metadata, expected)
        await asyncio.sleep(1000)
        raise AssertionError("the recovery has ended")

    monkeypatch.setattr(LedgerStore, "compare_and_set", held)


async def recovered(world: World) -> LedgerError:
    world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
    with pytest.raises(LedgerError) as raised:
        await world.recoverer().recover(timeout_s=3)
    return raised.value


@pytest.mark.parametrize(
    ("state", "applied", "stored", "text"),
    [
        (LedgerState.IN_RECOVERY, False, LedgerState.OPEN, "may be in recovery now"),
        (LedgerState.IN_RECOVERY, True, LedgerState.IN_RECOVERY, "may be in recovery now"),
        (LedgerState.CLOSED, False, LedgerState.IN_RECOVERY, "it may be closed already"),
        (LedgerState.CLOSED, True, LedgerState.CLOSED, "it may be closed already"),
    ],
)
def test_a_late_answer_leaves_the_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
    state: LedgerState,
    applied: bool,
    stored: LedgerState,
    text: str,
) -> None:
    async def scenario(world: World) -> None:
        hold_back(monkeypatch, state, applied=applied)
        error = await recovered(world)
        assert isinstance(error, MetadataUnavailableError)
        assert error.outcome == "unknown"
        assert text in str(error)
        metadata, _ = await world.ledgers.get(LEDGER, fresh=True)
        assert metadata.state is stored

    run(scenario)


def test_slow_bookies_leave_the_ledger_in_recovery() -> None:
    async def scenario(world: World) -> None:
        for name in "abc":
            world.bookies[name].failure = CallFailure.TIMEOUT
        error = await recovered(world)
        assert isinstance(error, QuorumTimeoutError)
        assert "stays in recovery, and its writer has ended" in str(error)

    run(scenario)


def test_a_refused_close_does_not_undo_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LedgerStore.compare_and_set

    async def refused(self: LedgerStore, metadata: LedgerMetadata, expected: Version) -> Version:
        if metadata.state is LedgerState.CLOSED:
            raise StoreRefusedError("/ledgers", "zk", "NoAuthError")
        return await plain(self, metadata, expected)

    monkeypatch.setattr(LedgerStore, "compare_and_set", refused)

    async def scenario(world: World) -> None:
        assert (await recovered(world)).outcome == "unknown"

    run(scenario)
