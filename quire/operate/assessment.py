"""Checks of a cluster's metadata: ledgers that lack copies, and records that contradict each
other.

Leaves reading the metadata to the commands, counting copies to `metadata.ledgers.copies`, and
groups of ledgers to `findings`. Pure.

Source: protocol rules 1.1, 3.1, 3.3, 9.1, 9.13; metadata design.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from bookie.storage.writability import ADVICE, BLOCKS_NO_ADDS, DESCRIPTIONS, Reason, reasons_of
from metadata.ids import BookieId
from metadata.ledgers.copies import bookies_with_entries, copies_of, fewest_copies, write_sets
from metadata.ledgers.entry_ranges import describe_ranges
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from quire.operate.findings import Finding, LedgerFinding, LedgerSample

PLANNED_STATES: Final = (Lifecycle.DRAINING, Lifecycle.DRAINED)
"""States in which a bookie takes no new entries because an operator wants it."""
EMPTIED_STATES: Final = (*PLANNED_STATES, Lifecycle.LIMBO)
"""States in which the copies of a bookie are moved, or were moved."""
NEXT_STEPS: Final = {
    Lifecycle.DRAINING: "wait: quire repair status shows what is left",
    Lifecycle.DRAINED: "quire bookie remove ID",
    Lifecycle.LIMBO: "keep it up, and wait: quire repair status shows what is left; once it is "
    "drained: quire bookie remove ID",
    Lifecycle.LOST: "wait for repair, or start it: quire bookie run --data-dir DIR; once nothing "
    "names it: quire bookie remove ID",
    Lifecycle.UNREADABLE: "use the release that wrote its record, or write a new one: "
    "quire bookie drain ID",
}
START: Final = "start it: quire bookie run --data-dir DIR"
WAIT: Final = "wait for repair: quire repair status shows what is left"
START_REPAIR: Final = "start repair: quire repair run-worker --audit"
NO_REPAIR: Final = Finding(
    "repair", "no auditor runs: lost copies are neither found nor made again", START_REPAIR
)
CHECK: Final = "see quire metadata check"
IF_GONE: Final = "if its disk is gone"
NO_COPY: Final = "entries may have no copy on a running bookie"
ACCEPTED: Final = "entries are lost, as accepted"
LOSSES: Final = (Reason.LIMBO, Reason.FENCES_LOST)
"""Reasons that a bookie may have lost data."""
DOWN_TEXTS: Final = {Lifecycle.LOST: "is lost", Lifecycle.LIMBO: "is in limbo, and not up"}
NAMED_TEXTS: Final = {
    Lifecycle.REMOVED: ("is removed", WAIT),
    Lifecycle.LOST: ("has no cookie, and is lost", WAIT),
}
"""What is said of bookies that do not exist and are named, and the next step."""
MAY_LEAVE: Final = (*PLANNED_STATES, Lifecycle.LOST)
"""States that lead to the removal of a bookie which nothing names."""
States = Mapping[BookieId, BookieLifecycle]


def bookie_findings(
    bookie: BookieRegistration, state: Lifecycle = Lifecycle.ACTIVE
) -> list[Finding]:
    """List the reasons why a bookie that is up takes no new entries, or is in limbo, unless its
    state says the same.
    """
    where, shown = f"bookie {bookie.bookie_id}", f"quire bookie info {bookie.bookie_id}"
    shows_loss = state in (Lifecycle.LIMBO, Lifecycle.DRAINED)
    said = (Reason.DRAINING, Reason.DRAINED, *(LOSSES if shows_loss else ()))
    reasons = [reason for reason in reasons_of(bookie.features) if reason not in said]
    findings = [
        Finding(
            where,
            f"{DESCRIPTIONS[reason]} ({reason.value})",
            ADVICE[reason].replace("ID", bookie.bookie_id),
        )
        for reason in reasons
    ]
    is_explained = state in EMPTIED_STATES or any(why not in BLOCKS_NO_ADDS for why in reasons)
    if not bookie.writable and not is_explained:
        findings.append(Finding(where, "takes no new entries", f"{shown} shows why"))
    return findings


def next_step(bookie_id: BookieId, state: Lifecycle) -> str:
    """Return what an operator does about a bookie in this state; empty if nothing."""
    return NEXT_STEPS.get(state, "").replace("ID", bookie_id)


def planned_warnings(states: States) -> list[Finding]:
    """List the bookies that drain, with what an operator does next."""
    return [
        Finding(
            f"bookie {bookie_id}",
            f"is {record.state}" + (f": {record.reason}" if record.reason else ""),
            next_step(bookie_id, record.state),
        )
        for bookie_id, record in states.items()
        if record.state in PLANNED_STATES
    ]


def state_findings(states: States, up: Collection[BookieId]) -> list[Finding]:
    """List the bookies in limbo that are up, a problem until their copies are moved, and those
    whose records cannot be read.
    """
    texts = {Lifecycle.UNREADABLE: "its state cannot be read"}
    return [
        Finding(
            f"bookie {bookie_id}",
            f"{texts.get(record.state, 'is in limbo')}: {record.reason}",
            next_step(bookie_id, record.state),
        )
        for bookie_id, record in states.items()
        if record.state is Lifecycle.UNREADABLE
        or (record.state is Lifecycle.LIMBO and bookie_id in up)
    ]


def down_findings(
    known: Iterable[BookieId],
    up: Collection[BookieId],
    holding: Mapping[BookieId, LedgerSample] | None,
    states: States = MappingProxyType({}),
    *,
    is_repaired: bool = True,
    last_seen: Mapping[BookieId, str] = MappingProxyType({}),
) -> tuple[list[Finding], list[Finding]]:
    """Return problems and warnings about bookies that are not up. `is_repaired` is whether an
    auditor runs; `last_seen` says where bookies were.

    `holding` maps a bookie to the ledgers with entries on it; None if that was not read. A bookie
    that holds nothing is no problem: it may have been replaced. A removed bookie is one only while
    ledgers name it all the same, and so is a bookie that does not exist.
    """
    findings, warnings = [], []
    formatted = dict.fromkeys(known)
    for bookie_id in dict.fromkeys([*formatted, *(holding or {})]):
        state = states.get(bookie_id, UNCHANGED).state
        if bookie_id in up:
            continue
        where, repair = f"bookie {bookie_id}", WAIT if is_repaired else START_REPAIR
        ledgers = None if holding is None else holding.get(bookie_id, LedgerSample())
        held = "" if ledgers is None else _held_text(ledgers)
        what = DOWN_TEXTS.get(state, "is not up")
        if bookie_id in last_seen:
            what += f" ({last_seen[bookie_id]})"
        if state is Lifecycle.REMOVED or bookie_id not in formatted:
            if ledgers is not None and ledgers.count:
                text, advice = NAMED_TEXTS.get(state, ("has no cookie", CHECK))
                findings.append(Finding(where, f"{text}; {held}", advice, ledgers))
        elif ledgers is not None and not ledgers.count:
            text, advice = f"{what}, and no ledger has entries on it", "no data depends on it"
            other = f"quire bookie remove {bookie_id}" if state in MAY_LEAVE else "leave it"
            warnings.append(Finding(where, text, f"{START}, or {other}: {advice}"))
        else:
            text = f"{what}; {held}" if held else what
            findings.append(Finding(where, text, f"{START}; {IF_GONE}, {repair}", ledgers))
    return findings, warnings


def _held_text(ledgers: LedgerSample) -> str:
    have = "has" if ledgers.count == 1 else "have"
    return f"{ledgers.text} {have} entries on it{ledgers.examples}"


def health_sentence(problem_count: int, certain_copies: Mapping[int, int] | None) -> str:
    """Return the state of a cluster in one sentence.

    `certain_copies` maps numbers of copies that are certain to be up to the number of ledgers of
    which an entry may have no more; None if the ledgers were not read.
    """
    problems = "one problem" if problem_count == 1 else f"{problem_count} problems"
    state = f"Not healthy, {problems}" if problem_count else "Healthy"
    if certain_copies is None:
        return f"{state}: ledgers were not checked."
    if not certain_copies:
        return f"{state}: there are no entries."
    least = min(certain_copies)
    ledgers = "one ledger" if certain_copies[least] == 1 else f"{certain_copies[least]} ledgers"
    if least == 0:
        return f"{state}: {ledgers} may have entries without a copy."
    kept = {1: "", 2: "losing any one bookie keeps all data; "}.get(
        least, f"losing any {least - 1} bookies keeps all data; "
    )
    lost = "losing one bookie" if least == 1 else f"losing {least}"
    return f"{state}: {kept}{lost} could hide {ledgers}."


def ledger_findings(ledger: LedgerMetadata, up: Collection[BookieId]) -> list[LedgerFinding]:
    """List the problems of one ledger while these bookies are up."""
    missing = [bookie for bookie in bookies_with_entries(ledger) if bookie not in up]
    if not missing:
        return _short_findings(ledger)
    names = ", ".join(missing)
    copies = fewest_copies(ledger, up)
    if copies is not None and copies.certain == 0:
        what = (
            f"entries from {copies.first_entry_id} on may have no copy on a running bookie;"
            f" these bookies are down: {names}"
        )
        advice = (
            "start those bookies again, with their own directories; if they are lost for good: "
            "quire ledger accept-loss ID"
        )
        return [LedgerFinding(ledger.ledger_id, NO_COPY, what, advice, tuple(missing))]
    what = f"entries lack copies; these bookies are down: {names}"
    advice = "start those bookies again, or wait for repair"
    return [LedgerFinding(ledger.ledger_id, "", what, advice, tuple(missing))]


def lost_warnings(ledger: LedgerMetadata) -> list[LedgerFinding]:
    """List the entries of a ledger whose loss an operator accepted: nothing is left to do."""
    if not ledger.lost:
        return []
    ranges = [(e.first_entry_id, e.last_entry_id) for e in ledger.lost if not e.is_after_the_end]
    what = [f"entries {describe_ranges(ranges)} are lost"] if ranges else []
    if ledger.lost[-1].is_after_the_end:
        what.append(
            f"entries after {ledger.last_entry_id} may have been acknowledged, and are lost"
        )
    text, advice = "; ".join(what) + ", as accepted", "quire ledger show lists them"
    return [LedgerFinding(ledger.ledger_id, ACCEPTED, text, advice)]


def _short_findings(ledger: LedgerMetadata) -> list[LedgerFinding]:
    """List where an in-sync ledger continued, or was recovered, with fewer members (rule 11.5); a
    fragment without entries lacks no copies.
    """
    short = [copy for copy in copies_of(ledger) if copy.lacking_members]
    if not short:
        return []
    least = min(len(copies.ensemble) for copies in short)
    cause = f"entries lack copies: {least} of {short[0].wanted} exist"
    what = f"{cause} from entry {short[0].first_entry_id} on"
    advice = (
        "wait: an open ledger's writer copies to members that return; a closed ledger needs repair"
    )
    return [LedgerFinding(ledger.ledger_id, cause, what, advice)]


def cluster_host_warnings(up: Mapping[BookieId, BookieRegistration]) -> list[Finding]:
    """Warn if there are several bookies and all of them are on one host."""
    hosts = dict.fromkeys(registration.place for registration in up.values())
    if len(hosts) != 1 or len(up) == 1:
        return []
    (place,) = hosts
    what = f"all {len(up)} bookies that are up are on host {place.host}: all copies fail with it"
    advice = "add bookies on other hosts; if they are on several, give each bookie its location"
    return [Finding("cluster", what, advice)]


def ledger_host_warnings(
    ledger: LedgerMetadata, up: Mapping[BookieId, BookieRegistration]
) -> list[LedgerFinding]:
    """Warn if two copies of an entry are on one host although the bookies that are up are on
    enough hosts for all copies (rule 3.3).
    """
    for write_set in write_sets(ledger):
        pair = _on_one_host([up[bookie_id] for bookie_id in write_set.bookies if bookie_id in up])
        if pair is not None:
            host_count = len(dict.fromkeys(bookie.place for bookie in up.values()))
            if host_count < len(write_set.bookies):
                return []
            one, other = pair
            what = (
                f"entries from {write_set.first_entry_id} on have copies on {one.bookie_id} and"
                f" {other.bookie_id}, both on host {one.place.host}; {host_count} hosts are up"
            )
            cause = f"entries have two copies on host {one.place.host}; {host_count} hosts are up"
            advice = "wait: repair moves copies of closed ledgers, unless move_misplaced is 0"
            return [LedgerFinding(ledger.ledger_id, cause, what, advice)]
    return []


def _on_one_host(
    bookies: Iterable[BookieRegistration],
) -> tuple[BookieRegistration, BookieRegistration] | None:
    seen: dict[object, BookieRegistration] = {}
    for bookie in bookies:
        first = seen.setdefault(bookie.place, bookie)
        if first is not bookie:
            return first, bookie
    return None


def record_findings(ledger: LedgerMetadata, formatted: Collection[BookieId]) -> list[Finding]:
    """List contradictions between one ledger's record and the rest of the metadata."""
    where = f"ledger {ledger.ledger_id}"
    findings = []
    named = dict.fromkeys(bookie for fragment in ledger.fragments for bookie in fragment.ensemble)
    unknown = [bookie for bookie in named if bookie not in formatted]
    if unknown:
        text = f"names bookies that have no cookie: {', '.join(unknown)}"
        findings.append(
            Finding(
                where,
                text,
                "if they were removed, their copies are lost: restore or delete the ledger",
            )
        )
    last = ledger.last_entry_id
    begins = ledger.last_fragment.first_entry_id
    if ledger.state is LedgerState.CLOSED and last is not None and begins > last + 1:
        text = f"it ends at {last}, and its last fragment begins at {begins}"
        findings.append(
            Finding(
                where, text, "report this as a defect: no release of Quire writes such a record"
            )
        )
    return findings
