"""Cleaning keeps up with sustained writes, in a model of segments whose entries die."""

from dataclasses import dataclass

from bookie.config import MIB, StorageConfig
from bookie.log.segments import Segment
from bookie.storage.cleaning import CleaningRoom, pace_of, plan_cleaning

CONFIG = StorageConfig()
WRITE_BYTES_PER_S = 50_000_000
CLASSES = ((0.5, 60.0), (0.3, 900.0), (0.2, 7200.0))
"""(Share of the bytes, mean lifetime in seconds)."""
STEP_S = 10.0
TOTAL_BYTES = 2**40


@dataclass
class Modelled:
    """A segment and its live bytes by class."""

    segment: Segment
    live: list[float]

    def age(self) -> None:
        self.live = [
            live * (1.0 - STEP_S / lifetime)
            for live, (_, lifetime) in zip(self.live, CLASSES, strict=True)
        ]
        self.segment.live_bytes = int(sum(self.live))
        if self.segment.live_bytes < MIB:
            self.segment.live_bytes = 0


class Model:
    """Segments by number, written at a constant rate and cleaned as planned."""

    def __init__(self, config: StorageConfig) -> None:
        self.held: dict[int, Modelled] = {}
        self.config = config
        self.next_number = 1
        self.unwritten = 0.0
        self.allowance = 0.0

    def add(self, live: list[float], *, is_cleaned: bool) -> None:
        size = max(1, int(sum(live)))
        segment = Segment(self.next_number, is_cleaned=is_cleaned, size=size, live_bytes=size)
        segment.mean_run_bytes = MIB
        self.held[self.next_number] = Modelled(segment, live)
        self.next_number += 1

    def step(self) -> None:
        for modelled in self.held.values():
            modelled.age()
        self.unwritten += WRITE_BYTES_PER_S * STEP_S
        while self.unwritten >= CONFIG.segment_bytes_max:
            self.unwritten -= CONFIG.segment_bytes_max
            self.add([CONFIG.segment_bytes_max * share for share, _ in CLASSES], is_cleaned=False)
        self.clean()

    def clean(self) -> None:
        while True:
            segments = [modelled.segment for modelled in self.held.values()]
            used = self.size / TOTAL_BYTES
            plan = plan_cleaning(segments, 10**9, self.config, CleaningRoom(2**40, False, 1.0))
            for number in plan.dead:
                del self.held[number]
            if not plan.rewrite:
                self.allowance = 0.0
                return
            if not self.allowance:
                pace = pace_of(plan.backlog_bytes, used, self.config, is_full=False)
                self.allowance = pace * STEP_S
            moved = [self.held[number] for number in plan.rewrite]
            size = sum(modelled.segment.live_bytes for modelled in moved)
            if size > self.allowance:
                pace = pace_of(plan.backlog_bytes, used, self.config, is_full=False)
                self.allowance += pace * STEP_S
                return
            self.allowance -= size
            for number in plan.rewrite:
                del self.held[number]
            live = [
                sum(modelled.live[place] for modelled in moved) for place in range(len(CLASSES))
            ]
            self.add(live, is_cleaned=True)

    @property
    def size(self) -> int:
        return sum(modelled.segment.size for modelled in self.held.values())

    @property
    def live_share(self) -> float:
        return sum(modelled.segment.live_bytes for modelled in self.held.values()) / max(
            1, self.size
        )


def test_half_of_what_is_held_is_live_at_50_mb_per_second() -> None:
    model = Model(CONFIG)
    for _ in range(int(2 * 3600 / STEP_S)):
        model.step()
    shares = []
    for _ in range(int(1800 / STEP_S)):
        model.step()
        shares.append(model.live_share)
    assert min(shares) >= 0.5


def test_one_segment_in_a_minute_would_not_keep_up() -> None:
    rate = CONFIG.segment_bytes_max // 60
    model = Model(StorageConfig(clean_bytes_per_s_min=rate, clean_bytes_per_s_max=rate))
    for _ in range(int(2 * 3600 / STEP_S)):
        model.step()
    assert model.live_share < 0.5
