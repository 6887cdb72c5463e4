"""Streams of frames, and damage to them: to a byte, a body, a frame, or their order.

Leaves the contents of a good stream to the episodes.
"""

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bookie.wire.frames import FRAME_HEADER_BYTES, FRAME_MAGIC
from tests.fuzz.mutations import Mutator

_HEADER: Final = struct.Struct("<HBBII")
UNTOUCHED_SHARE: Final = 0.15
RAW_SHARE: Final = 0.2
IDS_MAX: Final = 2**32

Seal = Callable[[bytearray, random.Random], None]


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame as it is sent, correct or not."""

    kind: int
    request_id: int
    body: bytes
    flags: int = 0

    def encode(self) -> bytes:
        """Return its bytes; the announced size is always correct."""
        head = _HEADER.pack(FRAME_MAGIC, self.kind, self.flags, self.request_id, len(self.body))
        return head + self.body


def cut_stream(data: bytes) -> list[RawFrame]:
    """Split bytes into complete frames, without knowledge of kinds or limits."""
    frames: list[RawFrame] = []
    at = 0
    while len(data) - at >= FRAME_HEADER_BYTES:
        magic, kind, flags, request_id, size = _HEADER.unpack_from(data, at)
        at += FRAME_HEADER_BYTES
        if magic != FRAME_MAGIC or len(data) - at < size:
            break
        frames.append(RawFrame(kind, request_id, data[at : at + size], flags))
        at += size
    return frames


class StreamDamage:
    """Damages streams; `seals` correct the checksums of some kinds."""

    def __init__(self, rng: random.Random, bodies: Sequence[bytes], seals: dict[int, Seal]) -> None:
        self._rng = rng
        self._mutator = Mutator(rng, bodies)
        self._seals = seals

    def damage(self, frames: Sequence[RawFrame]) -> bytes:
        """Return the bytes of a stream with some damage, or none."""
        rng = self._rng
        chance = rng.random()
        if chance < UNTOUCHED_SHARE:
            return _joined(frames)
        if chance < UNTOUCHED_SHARE + RAW_SHARE:
            return bytes(self._mutator.mutate(_joined(frames)))
        share = rng.choice((0.05, 0.2, 0.6))
        out: list[RawFrame] = []
        for frame in frames:
            out += self._change(frame) if rng.random() < share else [frame]
        if out and rng.random() < 0.1:
            place = int(rng.random() * len(out))
            out[place:] = reversed(out[place:])
        return _joined(out)

    def _change(self, frame: RawFrame) -> list[RawFrame]:
        rng = self._rng
        match int(rng.random() * 8):
            case 0:
                return []
            case 1:
                return [frame, frame]
            case 2:
                return [replace(frame, kind=int(rng.random() * 8))]
            case 3:
                return [replace(frame, flags=int(rng.random() * 4))]
            case 4:
                return [replace(frame, request_id=int(rng.random() * IDS_MAX))]
            case _:
                body = self._mutator.mutate(frame.body)
                seal = self._seals.get(frame.kind)
                if seal is not None and rng.random() < 0.6:
                    seal(body, rng)
                return [replace(frame, body=bytes(body))]


def _joined(frames: Sequence[RawFrame]) -> bytes:
    return b"".join([frame.encode() for frame in frames])
