"""Runs of the targets for a number of frames, in one process or several, and their sum.

Leaves single inputs to the targets.

Invariant: the inputs depend only on the seed and the number of frames, not on the workers. A run
that ends for lack of time has fed the same share to every target.
"""

import math
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.fuzz.bookie_login_target import BOOKIE_LOGIN
from tests.fuzz.client_episode import ClientTarget
from tests.fuzz.disk_targets import disk_targets
from tests.fuzz.findings import Finding, Tally, describe
from tests.fuzz.gateway_target import GATEWAY, gateway_parsers
from tests.fuzz.kafka_targets import kafka_targets
from tests.fuzz.known import KNOWN
from tests.fuzz.login_target import LOGIN
from tests.fuzz.sasl_target import sasl_target
from tests.fuzz.server_episode import SERVER
from tests.fuzz.stored_targets import stored_targets
from tests.fuzz.targets import Target
from tests.fuzz.watch import MEMORY_GROWTH_BYTES_MAX, forget_peak, hangs_noticed, peak_bytes
from tests.fuzz.wire_targets import wire_targets

SHARE_FRAMES: Final = 20_000
"""Approximate number of frames that a worker takes at a time."""
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a target's work: every `stride`th block from `first` on, to at least `frames`."""

    target: str
    seed: int
    first: int
    stride: int
    frames: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Results of one share."""

    target: str
    tally: Tally
    cpu_s: float
    growth_bytes: int


def all_targets() -> dict[str, Target]:
    """Return every target by its name."""
    made: list[Target] = [*wire_targets(), *disk_targets(), *stored_targets(), *kafka_targets()]
    made += [SERVER, ClientTarget(), sasl_target(), LOGIN, BOOKIE_LOGIN]
    made += [*gateway_parsers(), GATEWAY]
    return {target.name: target for target in made}


def plan(targets: Sequence[Target], frames: int, seed: int) -> list[Share]:
    """Divide frames by weight, and alternate between the targets."""
    total = sum(target.weight for target in targets)
    shares: list[tuple[float, Share]] = []
    for target in targets:
        wanted = max(1, round(frames * target.weight / total))
        count = max(1, wanted // SHARE_FRAMES)
        shares += [
            (i / count, Share(target.name, seed, i, count, -(-wanted // count)))
            for i in range(count)
        ]
    return [share for _, share in sorted(shares, key=lambda pair: pair[0])]


class Worker:
    """Works in this process."""

    def __init__(self) -> None:
        self.targets = all_targets()
        for target in self.targets.values():
            target.run_block(0, 1, Tally())  # objects that are made once do not count as growth
        forget_peak()
        self._peak_at_first = peak_bytes()

    def run(self, share: Share) -> Shared:
        """Run one share."""
        target, tally = self.targets[share.target], Tally()
        began_s, number = time.process_time(), share.first
        with hangs_noticed(tally):
            while tally.frames < share.frames:
                try:
                    target.run_block(share.seed, number, tally)
                except Exception as error:  # noqa: BLE001 - a hang, or a mistake of the fuzzer
                    what, where = describe(error)
                    block = f"{target.name} {share.seed} {number}"
                    tally.note(Finding(target.name, what, block, "", where))
                    break
                number += share.stride
        cpu_s = time.process_time() - began_s
        return Shared(share.target, tally, cpu_s, peak_bytes() - self._peak_at_first)


_WORKERS: Final[list[Worker]] = []


def _begin() -> None:
    _WORKERS.append(Worker())


def _run(share: Share) -> Shared:
    return _WORKERS[0].run(share)


def run(shares: Sequence[Share], workers: int, seconds_max: float = math.inf) -> list[Shared]:
    """Run all shares, each in a free process, or as many as the time allows."""
    end = time.monotonic() + seconds_max
    if workers <= 1:
        worker = Worker()
        return _until(end, map(worker.run, shares))
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _begin) as pool:
        return _until(end, pool.imap(_run, shares))


def _until(end: float, done: Iterator[Shared]) -> list[Shared]:
    kept: list[Shared] = []
    for shared in done:
        kept.append(shared)
        if time.monotonic() >= end:
            break
    return kept


def summarise(done: Sequence[Shared], elapsed_s: float, seed: int) -> dict[str, object]:
    """Return the results to print; `is_well` says whether there was no unknown finding."""
    tallies: dict[str, Tally] = {}
    cpu_s: dict[str, float] = {}
    for shared in done:
        tallies.setdefault(shared.target, Tally()).add(shared.tally)
        cpu_s[shared.target] = cpu_s.get(shared.target, 0.0) + shared.cpu_s
    frames = sum(tally.frames for tally in tallies.values())
    growth = max((shared.growth_bytes for shared in done), default=0)
    found = [finding for tally in tallies.values() for finding in tally.findings]
    known = [finding for finding in found if is_known(finding)]
    new = [finding for finding in found if not is_known(finding)]
    return {
        "seed": seed,
        "frames": frames,
        "elapsed_s": round(elapsed_s, 1),
        "frames_per_s": round(frames / max(elapsed_s, 1e-9)),
        "ten_million_frames_take_s": round(1e7 * elapsed_s / max(frames, 1)),
        "memory_growth_mb": round(growth / MIB, 1),
        "targets": {name: _told(tally, cpu_s[name]) for name, tally in sorted(tallies.items())},
        "findings": [_shown(finding) for finding in new],
        "known_findings": [_shown(finding) for finding in known],
        "is_well": not new and growth <= MEMORY_GROWTH_BYTES_MAX,
    }


def is_known(finding: Finding) -> bool:
    """Return whether a finding is of a known kind."""
    return any(
        finding.target in known.targets and finding.what.startswith(known.what) for known in KNOWN
    )


def _told(tally: Tally, cpu_s: float) -> dict[str, object]:
    return {
        "frames": tally.frames,
        "accepted": tally.accepted,
        "frames_per_cpu_s": round(tally.frames / max(cpu_s, 1e-9)),
        "largest_allocation_kb": tally.largest_allocation_bytes // 1024,
        "findings": len(tally.findings) + tally.findings_left_out,
    }


def _shown(finding: Finding) -> dict[str, object]:
    return {
        "target": finding.target,
        "what": finding.what,
        "block": finding.block,
        "is_forged": finding.is_forged,
        "input_hex": finding.shown_hex,
        "where": list(finding.where),
    }
