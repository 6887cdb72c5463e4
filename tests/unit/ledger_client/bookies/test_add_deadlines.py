"""How long a connection waits for the answers of adds, in virtual time."""

import asyncio

from bookie.wire.codec import encode_acks
from bookie.wire.frames import FrameKind
from bookie.wire.messages import Status
from ledger_client.bookies.connection import RECOVERY_ADD_S_MAX, BookieConnection
from ledger_client.bookies.connection_calls import CallFailure, PendingAdd
from metadata.ids import EntryId, LedgerId
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.pool_setting import Outcomes
from tests.support.ledger_client.recorded_connection import Recorder, opened, receive

TIMEOUT_S = 1.0
ANSWER_S = 0.5
COUNT = 20
HELLO = 1
"""Request id of the hello; the adds have the next ones."""


def _send(connection: BookieConnection, *, recovery: bool, count: int = COUNT) -> Outcomes:
    sink = Outcomes()
    for entry in range(count):
        add = PendingAdd(LedgerId(1), b"batch", EntryId(entry), recovery, sink)
        connection.send_add(add)
    return sink


async def _answer(connection: BookieConnection, number: int) -> None:
    await asyncio.sleep(ANSWER_S)
    acks = encode_acks([(HELLO + 1 + number, Status.OK)])
    receive(connection, FrameKind.ACKS, 0, acks)


def _play(*, recovery: bool, answered: int, sent: int = COUNT) -> dict[int, list[object]]:
    """Send adds at once, answer some, one by one, and return the outcomes after all that time."""

    async def main() -> dict[int, list[object]]:
        connection = opened(Recorder(), TIMEOUT_S)
        sink = _send(connection, recovery=recovery, count=sent)
        for number in range(answered):
            await _answer(connection, number)
        connection.close(CallFailure.CLOSED, "the test is over")
        await asyncio.sleep(0)
        return {entry: list(found) for entry, found in sink.outcomes.items()}

    return run_simulation(main, 1)


def test_a_recoverys_adds_wait_while_the_bookie_answers_one_after_the_other() -> None:
    """A bookie compares each of them with what it has stored; all are sent at once."""
    outcomes = _play(recovery=True, answered=COUNT)
    assert outcomes == {entry: [Status.OK] for entry in range(COUNT)}


def test_an_add_of_a_writer_has_its_own_deadline() -> None:
    outcomes = _play(recovery=False, answered=COUNT)
    assert outcomes[0] == [Status.OK]
    assert outcomes[COUNT - 1] == [CallFailure.TIMEOUT]


def test_a_recoverys_adds_fail_when_the_bookie_answers_no_more() -> None:
    async def main() -> Outcomes:
        connection = opened(Recorder(), TIMEOUT_S)
        sink = _send(connection, recovery=True)
        await _answer(connection, 0)
        await asyncio.sleep(2 * TIMEOUT_S)
        connection.close(CallFailure.CLOSED, "the test is over")
        return sink

    sink = run_simulation(main, 1)
    assert sink.outcomes.pop(0) == [Status.OK]
    assert sink.outcomes == {entry: [CallFailure.TIMEOUT] for entry in range(1, COUNT)}
    assert "did not answer an add" in sink.reasons[0]


def test_an_add_of_a_recovery_that_the_bookie_skips_does_not_wait_for_ever() -> None:
    answered = int(RECOVERY_ADD_S_MAX / ANSWER_S) + 2
    outcomes = _play(recovery=True, answered=answered, sent=answered + 1)
    assert outcomes[answered] == [CallFailure.TIMEOUT]
    assert outcomes[0] == [Status.OK]
