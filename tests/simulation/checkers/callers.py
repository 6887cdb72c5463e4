"""Checker: what a writer does for several callers at once, some of which are cancelled.

It sees every id in the step in which the writer assigns it, and the end of every call. A call that
has ended gets no id, no entry gets two, and callers get ids in the order of their calls.

Source: protocol rule 4.1; api design, "Cancelling".
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from ledger_client import LedgerError
from ledger_client.writing.admission import Admission
from metadata.ids import EntryId
from tests.simulation.model import LedgerModel, Model

NAME: Final = "callers"


@dataclass(slots=True, eq=False)
class Call:
    """One call that appends entries."""

    number: int
    payloads: tuple[bytes, ...]
    ids: list[int] = field(default_factory=list)
    """Ids that the writer assigned, in the order of the payloads."""
    has_ended: bool = False


class CallersChecker:
    """Checks the calls on one writer. Their payloads are distinct."""

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
        self._model.report(NAME, f"ledger {self._ledger.ledger_id}: {text}")


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
