"""Damaged inputs, made from good ones; the same seed makes the same inputs.

Leaves correcting checksums to `tests.fuzz.sealing`, and judging to the targets.

Invariants: no output is longer than `OUTPUT_BYTES_MAX`. All random numbers come from the given rng.
"""

import random
import struct
from collections.abc import Sequence
from typing import Final

OUTPUT_BYTES_MAX: Final = 256 * 1024
ROUNDS_MAX: Final = 6
SPAN_BYTES_MAX: Final = 64

_EXTREMES: Final = (
    0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0xFFFF,
    0x1_0000, 0x10_0000, 0xFF_FFFF, 0x100_0000, 0x100_0001, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE,
    0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFE, 0x7FFF_FFFF_FFFF_FFFF, 0x8000_0000_0000_0000,
    0xFFFF_FFFF_FFFF_FFFF,
)  # fmt: skip
_WIDTHS: Final = (1, 2, 4, 8)
_MSGPACK_MARKS: Final = bytes(range(0x80, 0xA2)) + bytes(range(0xC0, 0xE0)) + b"\xff\xe0\x7f\x00"
_U32: Final = struct.Struct("<I")


class Mutator:
    """Changes inputs of one kind.

    `samples` are good inputs to copy parts from; `fields` are the places (offset, size) of their
    numbers.
    """

    __slots__ = ("_fields", "_random", "_samples")

    def __init__(
        self,
        rng: random.Random,
        samples: Sequence[bytes],
        fields: Sequence[tuple[int, int]] = (),
    ) -> None:
        assert samples
        self._random = rng.random
        self._samples = samples
        self._fields = fields

    def pick(self) -> bytes:
        """Return one of the samples."""
        return self._samples[int(self._random() * len(self._samples))]

    def mutate(self, data: bytes) -> bytearray:
        """Return a changed copy; it may be equal by chance."""
        rnd = self._random
        out = bytearray(data)
        rounds = 1
        while rounds < ROUNDS_MAX and rnd() < 0.4:
            rounds += 1
        for _ in range(rounds):
            kind = int(rnd() * 14)
            if kind < 3:
                self._flip(out)
            elif kind < 6:
                self._edit_number(out)
            elif kind < 8:
                self._overwrite(out)
            else:
                out = self._resize(kind, out)
        return out[:OUTPUT_BYTES_MAX]

    def _flip(self, out: bytearray) -> None:
        if out:
            place = int(self._random() * 8 * len(out))
            out[place >> 3] ^= 1 << (place & 7)

    def _edit_number(self, out: bytearray) -> None:
        rnd = self._random
        if self._fields and rnd() < 0.7:
            offset, width = self._fields[int(rnd() * len(self._fields))]
        else:
            width = _WIDTHS[int(rnd() * 4)]
            offset = int(rnd() * (len(out) - width + 1))
        if offset < 0 or offset + width > len(out):
            return
        order = "little" if rnd() < 0.6 else "big"
        mask = (1 << 8 * width) - 1
        choice = rnd()
        if choice < 0.6:
            value = _EXTREMES[int(rnd() * len(_EXTREMES))]
        elif choice < 0.8:
            old = int.from_bytes(out[offset : offset + width], order)  # type: ignore[arg-type]
            value = old + int(rnd() * 9) - 4
        else:
            value = len(out) + int(rnd() * 65) - 32
        out[offset : offset + width] = (value & mask).to_bytes(width, order)  # type: ignore[arg-type]

    def _overwrite(self, out: bytearray) -> None:
        rnd = self._random
        if not out:
            return
        offset = int(rnd() * len(out))
        if rnd() < 0.5:
            out[offset] = _MSGPACK_MARKS[int(rnd() * len(_MSGPACK_MARKS))]
            return
        other = self.pick()
        start = int(rnd() * len(other))
        piece = other[start : start + 1 + int(rnd() * SPAN_BYTES_MAX)]
        out[offset : offset + len(piece)] = piece

    def _resize(self, kind: int, out: bytearray) -> bytearray:
        rnd = self._random
        offset = int(rnd() * (len(out) + 1))
        span = 1 + int(rnd() * SPAN_BYTES_MAX) if rnd() < 0.7 else 1 + int(rnd() * (len(out) + 1))
        match kind:
            case 8:  # cut short
                del out[offset:]
            case 9:  # a piece is missing
                del out[offset : offset + span]
            case 10:  # a piece is repeated
                out[offset:offset] = out[offset : offset + span]
            case 11:  # new bytes in the middle
                noise = bytes([int(rnd() * 256)]) if rnd() < 0.5 else bytes(span)
                out[offset:offset] = noise
            case 12:  # half of this, half of another
                other = self.pick()
                out[offset:] = other[int(rnd() * (len(other) + 1)) :]
            case _:  # bytes after the end
                out += self.pick()[:span] if rnd() < 0.5 else _U32.pack(int(rnd() * 2**32))
        return out
