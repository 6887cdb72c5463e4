"""Checkers of what writers and readers receive, and of what a writer decides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from typing_extensions import override

from ledger_client import LedgerError
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_events import AppendAction, AppendEvent, Confirm
from ledger_client.writing.admission import Admission
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Asked, Checker
from tests.simulation.model import LedgerModel, Model, members_in_sync


class OrderChecker(Checker):
    """Appends succeed in order, with consecutive ids.

    Source: protocol rules 4.1, 4.5; invariant "acks in order without gaps".
    """

    name = "order"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._lacs: dict[int, int] = {}
        """LAC that each writer last showed."""

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        if entry_id != expected:
            self.report(f"ledger {ledger.ledger_id}: an append got id {entry_id}, not {expected}")
        assert ledger.writer is not None
        lac = ledger.writer.last_confirmed
        if lac < entry_id:
            self.report(f"ledger {ledger.ledger_id}: entry {entry_id} succeeded, the LAC is {lac}")
        before = self._lacs.get(ledger.ledger_id, lac)
        if lac < before:
            self.report(f"ledger {ledger.ledger_id}: the writer's LAC went from {before} to {lac}")
        self._lacs[ledger.ledger_id] = lac


class ReadingChecker(Checker):
    """Readers get the appended bytes, up to a LAC that only grows and was confirmed.

    Source: protocol rules 8.1, 8.2, 8.5; invariants "acked entries are readable with the same
    bytes", "LAC per handle monotone and never beyond what was confirmed", "readers never see
    beyond their LAC".
    """

    name = "reading"

    @override
    def on_read(self, ledger: LedgerModel, entry_id: int, data: bytes) -> None:
        where = f"entry {entry_id} of ledger {ledger.ledger_id}"
        if ledger.payloads.get(entry_id) != data:
            self.report(f"{where} was read as {data[:40]!r}..., {len(data)} bytes, never appended")
        if entry_id > ledger.visible:
            self.report(f"{where} was read, and the LAC is {ledger.visible}")

    @override
    def on_reader_lac(self, ledger: LedgerModel, handle: int, lac: int) -> None:
        before = ledger.readers.get(handle, -1)
        ledger.readers[handle] = lac
        if lac < before:
            self.report(f"ledger {ledger.ledger_id}: a reader's LAC fell from {before} to {lac}")
        if lac > ledger.visible:
            self.report(
                f"ledger {ledger.ledger_id}: a reader's LAC is {lac}, the writer's {ledger.visible}"
            )

    @override
    def on_not_found(self, ledger: LedgerModel, text: str) -> None:
        if ledger.metadata is not None and not ledger.metadata.given_up:
            self.report(f"ledger {ledger.ledger_id}: what may be read was not found: {text}")


class OneWriterChecker(Checker):
    """A ledger has one writer for life, and one that is not claimed has none.

    Source: protocol rules 1.1 and 4.1; `quire/operate/appends.py`.
    """

    name = "one writer"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if before is None or now is None:
            return
        where = f"ledger {ledger.ledger_id}"
        is_claim = UNCLAIMED_NAME in before.custom and UNCLAIMED_NAME not in now.custom
        if now.writer != before.writer and not is_claim:
            self.report(f"{where} had the writer {before.writer}, and has {now.writer}")
        if UNCLAIMED_NAME in now.custom and UNCLAIMED_NAME not in before.custom:
            self.report(f"{where} was claimed by {before.writer}, and can be claimed again")
        if now.creation_token != before.creation_token:
            self.report(f"{where} became another ledger")

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        ledger = self.model.ledgers.get(asked.ledger_id)
        metadata = None if ledger is None else ledger.metadata
        if new and metadata is not None and UNCLAIMED_NAME in metadata.custom:
            self.report(
                f"{bookie_id} stored {new} of ledger {asked.ledger_id}, which has no writer"
            )


LEAST: Final = "least in sync"


@contextmanager
def watched_confirmations(model: Model) -> Iterator[None]:
    """Check every confirmation of every writer in the step in which it is decided.

    The caller receives it later, when other members may have failed.

    Nothing is acknowledged with fewer than `min_in_sync` members alive and in sync.

    Both the stored metadata and the writer's own state must name enough members.

    Source: protocol rules 11.2, 11.4.
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
    stored = [
        member for member in members_in_sync(ledger.metadata) if member not in protocol.parked
    ]
    least = protocol.metadata.quorum.min_in_sync
    if min(len(stored), len(protocol.in_sync)) < least:
        model.report(
            LEAST,
            f"ledger {ledger.ledger_id}: entries up to {action.lac} were confirmed with {stored} "
            f"alive and in sync, by the writer {protocol.in_sync}, and {least} are wanted",
        )


CALLERS: Final = "callers"


@dataclass(slots=True, eq=False)
class Call:
    """One call that appends entries."""

    number: int
    payloads: tuple[bytes, ...]
    ids: list[int] = field(default_factory=list)
    """Ids that the writer assigned, in the order of the payloads."""
    has_ended: bool = False


class CallersChecker:
    """What a writer does for several callers at once, some of which are cancelled.

    It sees every id in the step in which the writer assigns it, and the end of every call. A call
    that has ended gets no id, no entry gets two, and callers get ids in the order of their calls.
    The payloads of the calls on one writer are distinct.

    Source: protocol rule 4.1; api design, "Cancelling".
    """

    def __init__(self, model: Model, ledger: LedgerModel) -> None:
        self._model = model
        self._ledger = ledger
        self._calls: list[Call] = []
        self._call_of: dict[bytes, Call] = {}
        self._last_admitted = -1
        ledger.on_admitted = self._on_admitted

    def begin(self, payloads: Sequence[bytes]) -> Call:
        """Record a call, in the step in which it is made."""
        call = Call(len(self._calls), tuple(payloads))
        self._calls.append(call)
        for payload in payloads:
            assert payload not in self._call_of, "payloads are distinct"
            self._call_of[payload] = call
        return call

    def succeed(self, call: Call, ids: Sequence[int]) -> None:
        """Check the ids that a caller received."""
        call.has_ended = True
        if list(ids) != call.ids or len(call.ids) != len(call.payloads):
            self._report(
                f"call {call.number} for {len(call.payloads)} entries received the ids "
                f"{list(ids)}, and its entries got {call.ids}"
            )

    def cancel(self, call: Call) -> None:
        """Record that a caller was cancelled: without an id, its entry must not be stored."""
        call.has_ended = True

    def fail(self, call: Call, error: LedgerError) -> None:
        """Check what an error says about the call's entries."""
        call.has_ended = True
        if error.outcome == "not_written" and call.ids:
            self._report(f"call {call.number} was not written, and got {call.ids}: {error}")
        admitted = error.admitted_count
        if len(call.payloads) > 1 and admitted != len(call.ids):
            self._report(f"call {call.number} says {admitted} entries got ids, not {call.ids}")

    def _on_admitted(self, first_entry_id: int, payloads: Sequence[bytes]) -> None:
        for entry_id, payload in enumerate(payloads, first_entry_id):
            self._ledger.payloads[entry_id] = payload
            call = self._call_of.get(payload)
            if call is None:
                self._report(f"entry {entry_id} has bytes that no caller gave: {payload[:40]!r}")
                continue
            if call.has_ended:
                self._report(f"entry {entry_id} got its id after call {call.number} had ended")
            place = len(call.ids)
            if place >= len(call.payloads) or call.payloads[place] != payload:
                self._report(f"call {call.number} got id {entry_id} twice, or out of its order")
            if call.number < self._last_admitted:
                self._report(
                    f"call {call.number} got id {entry_id} after call {self._last_admitted}, "
                    "which came later"
                )
            call.ids.append(entry_id)
            self._last_admitted = max(self._last_admitted, call.number)

    def _report(self, text: str) -> None:
        self._model.report(CALLERS, f"ledger {self._ledger.ledger_id}: {text}")


@contextmanager
def watched_admissions(model: Model) -> Iterator[None]:
    """Show every id to the checker of its ledger in the step in which a writer assigns it."""
    push_entry, push_batch = Admission.push_entry, Admission.push_batch

    def watched_entry(self: Admission, payload: bytes, payload_bytes: int) -> EntryId:
        entry_id = push_entry(self, payload, payload_bytes)
        _show(model, self, entry_id, (payload,))
        return entry_id

    def watched_batch(self: Admission, payloads: list[bytes], payload_bytes: int) -> EntryId:
        first = push_batch(self, payloads, payload_bytes)
        _show(model, self, first, payloads)
        return first

    with (
        patch.object(Admission, "push_entry", watched_entry),
        patch.object(Admission, "push_batch", watched_batch),
    ):
        yield


def _show(model: Model, writer: Admission, first: EntryId, payloads: Sequence[bytes]) -> None:
    on_admitted = model.ledger(writer.ledger_id).on_admitted
    if on_admitted is not None:
        on_admitted(first, payloads)
