"""A lost bookie and its repair leave a line for each event in the log."""

import logging

import pytest

from quire.server.server_log import LOGGER
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import end


def test_a_loss_and_its_repair_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    gone, repaired = "", 0

    async def story(world: World) -> None:
        nonlocal gone, repaired
        (repaired,) = await world.write(1)
        gone = world.ledger(repaired).last_fragment.ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))

    with caplog.at_level(logging.INFO, logger=LOGGER):
        play(story)
    lines = [(record.message, getattr(record, "fields", {})) for record in caplog.records]
    assert ("auditor elected", {}) in lines
    changes = [fields for event, fields in lines if event == "bookie state changed"]
    assert next((record["bookie"], record["state"]) for record in changes) == (gone, "lost")
    events = [event for event, fields in lines if fields.get("ledger") == repaired]
    assert events == ["repair wanted", "repair began", "repair ended"]
