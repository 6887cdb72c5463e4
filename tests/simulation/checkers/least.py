"""Checker: nothing is acknowledged with fewer than `min_in_sync` members alive and in sync.

Both the stored metadata and the writer's own state must name enough members.

Source: protocol rules 11.2, 11.4.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_events import AppendAction, AppendEvent, Confirm
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.model import Model, members_in_sync

NAME: Final = "least in sync"


@contextmanager
def watched_confirmations(model: Model) -> Iterator[None]:
    """Check every confirmation of every writer in the step in which it is decided.

    The caller receives it later, when other members may have failed.
    """
    handle = AppendProtocol.handle

    def watched(self: AppendProtocol, event: AppendEvent) -> list[AppendAction]:
        actions = handle(self, event)
        if self.metadata.quorum.is_in_sync:
            for action in actions:
                if isinstance(action, Confirm):
                    _look_at(model, self, action)
        return actions

    with patch.object(AppendProtocol, "handle", watched):
        yield


def _look_at(model: Model, protocol: AppendProtocol, action: Confirm) -> None:
    ledger = model.ledger(protocol.metadata.ledger_id)
    if ledger.metadata is None or ledger.metadata.state is not LedgerState.OPEN:
        return
    stored = [each for each in members_in_sync(ledger.metadata) if each not in protocol.parked]
    least = protocol.metadata.quorum.min_in_sync
    if min(len(stored), len(protocol.in_sync)) < least:
        model.report(
            NAME,
            f"ledger {ledger.ledger_id}: entries up to {action.lac} were confirmed with {stored} "
            f"alive and in sync, by the writer {protocol.in_sync}, and {least} are wanted",
        )
