"""Campaign: thousands of damaged directories are opened; none may return wrong answers.

Wrong answers are wrong bytes and a false "no such entry". Leaves the kinds of damage, and what must
survive each, to `log_damage` and `cookie_damage`. The directories are written by a storage that is
killed between a write and its sync.

A state that kills the opening process counts as a violation, except for damage in the index: LMDB
0.9 has no page checksums and reads its file as memory. These cases are counted.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from random import Random
from typing import Final

from bookie.files.disk_real import RealDisk
from bookie.index.index_pages import read_meta
from bookie.storage.opening import INDEX_NAME
from tests.faults import crash_points, storage_writer
from tests.faults.budget import Budget, Summary
from tests.faults.children import Child, make_directory
from tests.faults.cookie_damage import run_cookies
from tests.faults.examining import LINE_END, Verdict, examine
from tests.faults.log_damage import (
    INDEX,
    KINDS,
    Damage,
    Survival,
    Template,
    draw_damage,
    load,
    survival_of,
)
from tests.faults.promises import CONFIG, Promises

STATES_SMALL: Final = 300
STATES_FULL: Final = 10_000
COOKIES_SHARE: Final = 0.05
STATES_OF_A_TEMPLATE: Final = 140
STATES_OF_A_PROCESS: Final = 35
LIVES_MAX: Final = 3
LIFE_S: Final = (0.03, 0.25)
GROUPS_MAX: Final = 60
GROUPS_MIN: Final = 20
STATE_S_MAX: Final = 20
State = tuple[Damage, Survival]


class TornStates:
    """One campaign that runs."""

    def __init__(self, budget: Budget) -> None:
        wanted = budget.cycles(small=STATES_SMALL, full=STATES_FULL)
        self.summary = Summary("torn_states", budget, wanted)
        self._rng = Random(f"torn states {budget.seed}")
        self._kinds = list(KINDS)

    def run(self) -> Summary:
        """Try all states."""
        cookies = round(self.summary.wanted * COOKIES_SHARE)
        findings = run_cookies(cookies, f"cookies {self.summary.budget.seed}")
        self.summary.violations += findings
        self.summary.counts["cookie"] += cookies
        self.summary.cycles += cookies
        while self.summary.is_wanting():
            parent = make_directory("torn-states", in_memory=True)
            try:
                self._try_template(make_template(parent / "template", self._rng), parent)
            finally:
                shutil.rmtree(parent, ignore_errors=True)
        return self.summary

    def _try_template(self, template: Template, parent: Path) -> None:
        summary = self.summary
        summary.counts["directories"] += 1
        count = min(STATES_OF_A_TEMPLATE, summary.wanted - summary.cycles)
        states: list[State] = []
        for number in range(summary.cycles, summary.cycles + count):
            damage = draw_damage(template, self._kinds[number % len(self._kinds)], self._rng)
            damage = damage or draw_damage(template, "sector", self._rng)
            assert damage is not None, "every segment has sectors"
            states.append((damage, survival_of(template, damage)))
        while states and summary.is_wanting():
            verdicts, status = _examine_states(template, states[:STATES_OF_A_PROCESS], parent)
            for state, verdict in zip(states, verdicts, strict=False):
                self._judge(template, state, verdict)
            done = len(verdicts)
            if done < len(states[:STATES_OF_A_PROCESS]):
                self._judge_death(states[done][0], status)
                done += 1
            states = states[done:]
            summary.cycles += done

    def _judge(self, template: Template, state: State, verdict: Verdict) -> None:
        damage, survival = state
        counts = self.summary.counts
        counts[damage.kind] += 1
        counts["entries served"] += verdict.served
        counts["entries unknown"] += verdict.unknown
        counts["opened in limbo"] += verdict.is_limbo
        counts["refused to open"] += bool(verdict.refused)
        texts = list(verdict.violations)
        if verdict.refused and damage.name != INDEX:
            texts.append(f"does not open: {verdict.refused}")
        if survival.is_torn_tail and not verdict.refused:
            counts["torn tails cut"] += 1
            if verdict.is_limbo or verdict.unknown:
                text = f"limbo: {verdict.is_limbo}, {verdict.unknown} entries are unknown"
                texts.append(f"a torn tail was taken for corruption ({text})")
        if damage.name != INDEX and not verdict.refused:
            for name, size in survival.sizes_min.items():
                left = verdict.sizes.get(name, 0)
                if left < size:
                    texts.append(f"{name} was cut to {left} bytes, and {size} were durable")
        self._complain(template, damage, texts)

    def _judge_death(self, damage: Damage, status: int) -> None:
        self.summary.counts[damage.kind] += 1
        if damage.name == INDEX and status in (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT):
            self.summary.counts[f"LMDB ended the process ({signal.Signals(-status).name})"] += 1
        else:
            self.summary.violations.append(f"{damage.kind}: the process ended with {status}")

    def _complain(self, template: Template, damage: Damage, texts: list[str]) -> None:
        before, after = template.files[damage.name], damage.data
        for text in texts:
            where = f"{damage.kind} in {damage.name} ({len(before)} bytes"
            now = "removed" if after is None else f"now {len(after)}"
            self.summary.violations.append(f"{where}, {now}): {text}")


def _examine_states(
    template: Template, states: list[State], parent: Path
) -> tuple[list[Verdict], int]:
    """Examine states in a separate process until it ends; return how it ended."""
    copy = parent / "copy"

    def work() -> None:
        for damage, survival in states:
            signal.alarm(STATE_S_MAX)
            shutil.copytree(template.directory, copy)
            damage.apply(copy)
            os.write(1, asyncio.run(examine(copy, survival.promises)).as_line())
            shutil.rmtree(copy)

    end = Child(work).wait(STATE_S_MAX * len(states))
    shutil.rmtree(copy, ignore_errors=True)
    lines = end.output[: end.output.rfind(LINE_END) + 1].splitlines()
    return [Verdict.of_line(line) for line in lines], end.status


def make_template(directory: Path, rng: Random) -> Template:
    """Write a directory in a few processes; the last ends between the write and the sync of a
    group.
    """
    promises = Promises()
    directory.mkdir()
    for _ in range(rng.randint(0, LIVES_MAX - 1)):
        _live(directory, "", rng, promises, rng.uniform(*LIFE_S))
    crash = f"write.unsynced:{rng.randint(GROUPS_MIN, GROUPS_MAX)}"
    _live(directory, crash, rng, promises, STATE_S_MAX)
    template = load(directory, _mark_of(directory), promises)
    held = {(item.ledger_id, entry) for item in template.items for entry in item.entries}
    for ledger_id, known in promises.ledgers.items():
        if not known.is_delete_tried:
            missing = [entry for entry in known.added if (ledger_id, entry) not in held]
            assert not missing, f"ledger {ledger_id} was written without {missing}"
    return template


def _live(directory: Path, crash: str, rng: Random, promises: Promises, life_s: float) -> None:
    seed = str(rng.random())

    def work() -> None:
        storage_writer.main([str(directory), "--seed", seed])

    promises.take(Child(work, {crash_points.VARIABLE: crash}).wait(life_s).output)


def _mark_of(directory: Path) -> int:
    """Return the checkpoint's mark from a copy of the directory: a start may move it."""
    parent = make_directory("mark", in_memory=True)

    async def read() -> int:
        disk = RealDisk(parent / "copy")
        store = await disk.open_index(INDEX_NAME, CONFIG.index_map_bytes)
        meta = await store.view(read_meta)
        await store.close()
        await disk.close()
        return 0 if meta is None else meta.mark_lsn

    try:
        shutil.copytree(directory, parent / "copy")
        return asyncio.run(read())
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    return TornStates(budget).run()
