"""Frames of a bookie's answers.

Leaves their content to `bookie.server.ledger_requests`.

Invariant: an answer never exceeds the largest frame; a longer one ends early, before a batch, and
says where to continue.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bookie.storage.answers import ReadResult
from bookie.wire.batch import Buffer, parse_header
from bookie.wire.codec import TEXT_BYTES_MAX, encode_acks, encode_message
from bookie.wire.entries import ENTRIES_BATCHES_MAX, ENTRIES_HEADER_BYTES, encode_entries
from bookie.wire.frames import FRAME_BYTES_MAX, FrameKind, frame_header
from bookie.wire.messages import Refused, Reply, Status

BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - ENTRIES_HEADER_BYTES
"""Maximum size of a batch: it must fit into an answer as well as into an add."""


def reply_frame(request_id: int, reply: Reply) -> bytes:
    """Return the frame with the answer to a control message."""
    body = encode_message(reply)
    return frame_header(FrameKind.REPLY, request_id, len(body)) + body


def refusal_frame(request_id: int, status: Status, reason: str) -> bytes:
    """Return the frame of a refusal: the request was not executed, and why."""
    return reply_frame(request_id, Refused(status, reason[:TEXT_BYTES_MAX]))


def acks_frame(acks: Sequence[tuple[int, Status]]) -> bytes:
    """Return one frame with the answers to many adds."""
    body = encode_acks(acks)
    return frame_header(FrameKind.ACKS, 0, len(body)) + body


def entries_frame(request_id: int, result: ReadResult) -> list[Buffer]:
    """Return the answer to a read as buffers to write one after another."""
    result = _cut_to_limits(result)
    body = encode_entries(result.status, result.lac, result.next_entry_id, result.batches)
    size = sum(map(len, body))
    return [frame_header(FrameKind.ENTRIES, request_id, size), *body]


def _cut_to_limits(result: ReadResult) -> ReadResult:
    size = 0
    for index, batch in enumerate(result.batches):
        size += len(batch)
        if size > BATCH_BYTES_MAX or index == ENTRIES_BATCHES_MAX:
            assert index, "one batch always fits: a larger one is refused when it is added"
            following = parse_header(batch).first_entry_id
            kept = result.batches[:index]
            return replace(result, status=Status.OK, next_entry_id=following, batches=kept)
    return result
