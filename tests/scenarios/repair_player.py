"""Player of transcripts of repair: what one ledger lacks, and what repair does about it.

Set-up: `quorum E/WQ/AQ[/S]` or `in_sync E min N`, `fragments 0:a,b,c`, `last N` of a closed ledger,
`state recovering` or `state unclaimed` of one that is not simply open, `session 10` in seconds.

Events:
    needs gone=a draining=b limbo=c places=a:r1/h1,b:r1/h2 usable=d   rules 9.6, 9.7, 9.13, 9.17
    lost 3..4                           an operator accepted a loss
    plan d replaces=a at=0              one copy; then `mark`, `swap` and `unmark` (rule 9.1)
    change 0:a,b,e                      another process changed the members of a fragment
    writer missing 10                   a look at the writer's node at 10 s; or `writer there 10`
    bad a 3..12                         what a scrub of a bookie reports (rule 9.12)
    listed a 0..3,6..9                  what a member lists of the ledger (rule 9.16)
    state a draining                    change of a bookie's state (rules 9.5, 9.8, 9.13)
    job queued 5 | job blocked REASON   state of the ledger's job, and when it was queued
    members a,b 20                      the registered bookies at 20 s: is the job tried again?
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from ledger_client.protocol.copy import CopyPlan, CopyRefused, CopyState, plan_copy
from ledger_client.recovery.missing_writers import MissingWriters, OpenAction
from metadata.errors import InvalidLifecycleChangeError
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import ranges_on
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata, LedgerState
from metadata.registry.location import Place
from metadata.registry.registration import BookieRegistration
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle, changed
from metadata.repair.scrub import BadRange
from quire.repair.bad_entries import bad_entries, lacking
from quire.repair.needs import RepairClass, class_of, holders_of, needs_of
from quire.repair.publishing import Changes, Retries
from quire.repair.spread import NO_PLACES, Places
from quire.repair.standing import Standing, Standings
from tests.scenarios import words as w

ACTIONS: Mapping[OpenAction, str] = {
    OpenAction.MOVE: "replace its members, without a copy",
    OpenAction.LEAVE: "leave it to its writer",
    OpenAction.LOOK_AGAIN: "look again",
    OpenAction.RECOVER: "recover it",
}


class RepairPlayer:
    """One ledger, as repair sees it."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        last = int(setup["last"]) if "last" in setup else None
        kind = setup.get("state", "")
        state = LedgerState.OPEN if last is None else LedgerState.CLOSED
        state = LedgerState.IN_RECOVERY if kind == "recovering" else state
        fragments = w.parse_fragments(setup["fragments"])
        ledger = w.ledger(w.parse_quorum_of(setup), fragments, state, last or 0, 1_000)
        self._ledger = replace(ledger, custom={UNCLAIMED_NAME: b""} if kind == "unclaimed" else {})
        self._missing = MissingWriters(float(setup.get("session", "10")))
        self._plan: CopyPlan | None = None
        self._states: dict[str, BookieLifecycle] = {}
        self._changes = Changes()
        self._retries = Retries()
        self._job = Job(JobName(RepairClass.LAST_COPY, 0, ledger.ledger_id), ("test",), 0)

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["needs", *rest]:
                return self._needs(w.parse_options(rest))
            case ["lost", *ranges]:
                lost = [range_ for text in ranges for range_ in _ranges(text)]
                self._ledger = self._ledger.with_lost(lost, 5, w.TOKEN)
                return []
            case ["plan" | "mark" | "swap" | "unmark" | "change", *rest]:
                return self._copied(words[0], rest)
            case ["writer", "there" | "missing" as seen, at]:
                is_there = seen == "there"
                ledger, now_s = self._ledger, float(at)
                return [ACTIONS[self._missing.look(ledger, is_registered=is_there, now_s=now_s)]]
            case ["bad", bookie_id, ranges]:
                return self._bad(BookieId(bookie_id), ranges)
            case ["listed", bookie_id, *ranges]:
                return self._listed(BookieId(bookie_id), "".join(ranges))
            case ["state", bookie_id, to]:
                return [self._state(BookieId(bookie_id), Lifecycle(to))]
            case ["job" | "members", *rest]:
                return self._tried(words[0], rest)
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _needs(self, given: Mapping[str, str]) -> list[str]:
        kinds = {"gone": Standing.GONE, "draining": Standing.DRAINING, "limbo": Standing.UNPROVEN}
        standings = Standings(
            {
                bookie: standing
                for name, standing in kinds.items()
                for bookie in w.parse_bookies(given.get(name, ""))
            }
        )
        places = _places(given) if "places" in given else NO_PLACES
        urgency = class_of(holders_of(self._ledger), self._ledger.quorum, standings)
        shown = [] if urgency is None else [f"class {urgency.name.lower().replace('_', ' ')}"]
        for need in needs_of(self._ledger, standings, places):
            what = "add a member" if need.replaces is None else f"replace {need.replaces}"
            lost = ", and some entries have no copy" if need.is_lost else ""
            shown.append(f"{what} from {need.first_entry_id} on: {need.cause}{lost}")
        return shown

    def _copied(self, what: str, rest: Sequence[str]) -> list[str]:
        ledger, plan = self._ledger, self._plan
        if what == "plan":
            given = w.parse_options(rest[1:])
            first, target = EntryId(int(given["at"])), BookieId(rest[0])
            planned = plan_copy(ledger, first, target, BookieId(given["replaces"]))
            if not isinstance(planned, CopyPlan):
                return [planned.reason if isinstance(planned, CopyRefused) else "it is a member"]
            self._plan = planned
            parts = [f"{first}..{last}" for first, last in planned.ranges()]
            return [f"copy {','.join(parts) or 'nothing'}"]
        if what == "change":
            (fragment,) = w.parse_fragments(rest[0])
            index = ledger.fragment_index_of(fragment.first_entry_id)
            marks = ledger.fragments[index].incoming
            self._ledger = ledger.with_fragment(index, replace(fragment, incoming=marks), w.TOKEN)
            return []
        assert plan is not None, "plan the copy first"
        state = plan.standing(ledger)
        if what == "unmark":
            self._ledger = plan.unmarked(ledger, w.TOKEN) or ledger
        elif state is (CopyState.UNMARKED if what == "mark" else CopyState.MARKED):
            change = plan.marked if what == "mark" else plan.named
            self._ledger = change(ledger, w.TOKEN)
        else:
            return [f"no: the fragment is {state.name.lower()}"]
        return [_show(self._ledger)]

    def _bad(self, bookie_id: BookieId, ranges: str) -> list[str]:
        reported = [
            BadRange(self._ledger.ledger_id, EntryId(first), EntryId(last))
            for first, last in _ranges(ranges)
        ]
        found = bad_entries(self._ledger, bookie_id, reported)
        return [f"store {entries.text} again" for entries in found]

    def _listed(self, bookie_id: BookieId, ranges: str) -> list[str]:
        async def missing() -> list[Range]:
            wanted = ranges_on(self._ledger, bookie_id)
            return [each async for each in lacking(wanted, _each(_ranges(ranges)))]

        return [f"missing {first}..{last}" for first, last in asyncio.run(missing())]

    def _state(self, bookie_id: BookieId, to: Lifecycle) -> str:
        current = self._states.get(bookie_id, BookieLifecycle())
        try:
            record = changed(bookie_id, current, to, "", 0)
        except InvalidLifecycleChangeError:
            return f"refused: {bookie_id} is {current.state}"
        self._states[bookie_id] = record
        return f"{bookie_id} is {record.state}"

    def _tried(self, what: str, rest: Sequence[str]) -> list[str]:
        if what == "job":
            state, more = rest
            if state == "queued":
                self._retries.note_queued(self._job.name, float(more))
            self._job = replace(self._job, state=JobState(state), blocked_reason=more)
            return []
        members, at = rest
        published = {self._job.name: self._job}
        up = {bookie: BookieRegistration(bookie, "host", 1) for bookie in w.parse_bookies(members)}
        is_changed = self._changes.of_cluster(up, {})
        due = self._retries.look(published, (), float(at), is_cluster_changed=is_changed)
        return ["try it again" for _ in due]


def _places(given: Mapping[str, str]) -> Places:
    known: dict[BookieId, Place] = {}
    for part in given["places"].split(","):
        name, _, place = part.partition(":")
        known[BookieId(name)] = Place(*place.split("/"))
    return Places(known, w.parse_bookies(given.get("usable", "")))


def _ranges(text: str) -> list[Range]:
    pairs = [part.split("..") for part in text.split(",") if part]
    return [(EntryId(int(first)), EntryId(int(last))) for first, last in pairs]


async def _each(ranges: Sequence[Range]) -> AsyncIterator[Range]:
    for range_ in ranges:
        yield range_


def _show(ledger: LedgerMetadata) -> str:
    marks = [f"{f.first_entry_id}:{','.join(f.incoming)}" for f in ledger.fragments if f.incoming]
    shown = f"members {w.show_fragments(ledger.fragments)}"
    return f"{shown}, incoming {';'.join(marks)}" if marks else shown
