"""Interface of the fuzz targets, and the blocks of inputs drawn from a seed.

Leaves inputs and checks to the modules of targets, and many blocks to `tests.fuzz.runner`.

Invariants: a block depends only on its name. Block 0 also feeds every sample and every hostile
input unchanged. One block in `TRACED_EVERY` measures the allocations of each input.
"""

import random
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tests.fuzz.findings import Check, Finding, InvariantError, Tally, describe
from tests.fuzz.mutations import Mutator

INPUTS_PER_BLOCK: Final = 512
TRACED_EVERY: Final = 32
REMEASURED: Final = 3
"""How often an input that allocated too much is measured again: the measurement includes what other
threads of the process allocate meanwhile, and imports of a first call."""
SEALED_SHARE: Final = 0.5
UNCHANGED_SHARE: Final = 0.01
KIB: Final = 1024

Seal = Callable[[bytearray, random.Random], None]


class Target(Protocol):
    """Code that accepts bytes from outside."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def weight(self) -> float:
        """Share of all frames, relative to the other targets."""

    def run_block(self, seed: int, number: int, tally: Tally) -> None:
        """Feed it one block of inputs."""

    def replay(self, data: bytes, *, is_forged: bool) -> Tally:
        """Feed it one input; `is_forged`: its checksums were made after the change."""


@dataclass(frozen=True, slots=True)
class ParserTarget:
    """Function from bytes to a value or a typed error."""

    name: str
    check: Check
    samples: tuple[bytes, ...]
    hostile: tuple[bytes, ...] = ()
    """Handmade inputs that are meant to cost much; they are not good ones."""
    seal: Seal | None = None
    fields: tuple[tuple[int, int], ...] = ()
    weight: float = 1.0
    allocation_base_bytes: int = 512 * KIB
    allocation_factor: int = 80
    """What an input may allocate: the base (packing a message takes a buffer of 256 KiB), and this
    many times its own size.
    """

    def run_block(self, seed: int, number: int, tally: Tally) -> None:
        """See `Target`."""
        block = f"{self.name} {seed} {number}"
        rng = random.Random(block)
        mutator = Mutator(rng, self.samples, self.fields)
        is_traced = number % TRACED_EVERY == 0
        if is_traced:
            tracemalloc.start()
        try:
            if number == 0:
                for sample in self.samples:
                    before = tally.accepted + len(tally.findings)
                    self._feed(sample, sample, tally, block, is_traced=is_traced)
                    is_seen = tally.accepted + len(tally.findings) > before
                    assert is_seen, f"{self.name}: a sample is not accepted: {sample!r}"
                for sample in self.hostile:
                    self._feed(sample, b"", tally, block, is_traced=is_traced)
            for _ in range(INPUTS_PER_BLOCK):
                origin = mutator.pick()
                if rng.random() < UNCHANGED_SHARE:
                    self._feed(origin, origin, tally, block, is_traced=is_traced)
                    continue
                changed = mutator.mutate(origin)
                is_sealed = self.seal is not None and rng.random() < SEALED_SHARE
                if is_sealed and self.seal is not None:
                    self.seal(changed, rng)
                self._feed(
                    bytes(changed), origin, tally, block, is_sealed=is_sealed, is_traced=is_traced
                )
        finally:
            if is_traced:
                tracemalloc.stop()

    def replay(self, data: bytes, *, is_forged: bool) -> Tally:
        """See `Target`."""
        tally = Tally()
        tracemalloc.start()
        self._feed(data, b"", tally, "replay", is_sealed=is_forged, is_traced=True)
        tracemalloc.stop()
        return tally

    def _feed(
        self,
        data: bytes,
        origin: bytes,
        tally: Tally,
        block: str,
        *,
        is_sealed: bool = False,
        is_traced: bool,
    ) -> None:
        tally.frames += 1
        tally.inputs += 1
        try:
            if not is_traced:
                tally.accepted += self.check(data, origin, is_sealed)
                return
            tally.traced += 1
            accepted, allocated = self._traced(data, origin, is_sealed)
            tally.accepted += accepted
            bound = self.allocation_base_bytes + self.allocation_factor * len(data)
            for _ in range(REMEASURED):
                if allocated <= bound:
                    break
                allocated = min(allocated, self._traced(data, origin, is_sealed)[1])
            tally.largest_allocation_bytes = max(tally.largest_allocation_bytes, allocated)
            if allocated > bound:
                share = (allocated >> 20) or 1
                raise InvariantError(f"an input allocated about {share} MiB, over its bound")
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            what, where = describe(error)
            tally.note(Finding(self.name, what, block, data.hex(), where, is_forged=is_sealed))

    def _traced(self, data: bytes, origin: bytes, is_sealed: bool) -> tuple[bool, int]:
        """Return if the input was accepted, and the most bytes that it had allocated at a time."""
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        accepted = self.check(data, origin, is_sealed)
        _, peak = tracemalloc.get_traced_memory()
        return accepted, peak - before
