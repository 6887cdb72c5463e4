"""Checks of a cluster's metadata: ledgers that lack copies, and records that contradict each
other.

Leaves reading the metadata to the commands, and counting copies to `copy_counts`. Pure.

Source: protocol rules 1.1, 3.1, 3.3, 9.1; metadata design.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bookie.storage.writability import ADVICE, BLOCKS_NO_ADDS, DESCRIPTIONS, reasons_of
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.registry.registration import BookieRegistration
from quire.copy_counts import bookies_with_entries, fewest_copies


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the next step for the operator."""

    where: str
    what: str
    advice: str


def bookie_findings(bookie: BookieRegistration) -> list[Finding]:
    """List the reasons why a bookie that is up takes no new entries, or is in limbo."""
    where, shown = f"bookie {bookie.bookie_id}", f"quire bookie info {bookie.bookie_id}"
    reasons = reasons_of(bookie.features)
    findings = [
        Finding(
            where,
            f"{DESCRIPTIONS[reason]} ({reason.value})",
            ADVICE[reason].replace("ID", bookie.bookie_id),
        )
        for reason in reasons
    ]
    if not bookie.writable and not any(reason not in BLOCKS_NO_ADDS for reason in reasons):
        findings.append(Finding(where, "takes no new entries", f"{shown} shows why"))
    return findings


def down_findings(
    known: Iterable[BookieId], up: Collection[BookieId], holding: Mapping[BookieId, int] | None
) -> tuple[list[Finding], list[Finding]]:
    """Return problems and warnings about bookies that are not up.

    `holding` maps a bookie to the number of ledgers with entries on it; None if that was not read.
    A bookie that holds nothing is no problem: it may have been replaced.
    """
    findings, warnings = [], []
    for bookie_id in known:
        if bookie_id in up:
            continue
        where, start = f"bookie {bookie_id}", "start it: quire bookie run --data-dir DIR"
        count = None if holding is None else holding.get(bookie_id, 0)
        if count == 0:
            text = "is not up, and no ledger has entries on it"
            warnings.append(Finding(where, text, f"{start}, or leave it: no data depends on it"))
        else:
            held = "" if count is None else f"; {count} ledgers have entries on it"
            findings.append(Finding(where, f"is not up{held}", start))
    return findings, warnings


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


def ledger_findings(ledger: LedgerMetadata, up: Collection[BookieId]) -> list[Finding]:
    """List the problems of one ledger while these bookies are up."""
    where = f"ledger {ledger.ledger_id}"
    missing = [each for each in bookies_with_entries(ledger) if each not in up]
    if not missing:
        return _short_findings(ledger)
    names = ", ".join(missing)
    copies = fewest_copies(ledger, up)
    if copies is not None and copies.certain == 0:
        what = (
            f"entries from {copies.first_entry_id} on may have no copy on a running bookie;"
            f" these bookies are down: {names}"
        )
        return [Finding(where, what, "start those bookies again, with their own directories")]
    return [
        Finding(
            where,
            f"entries lack copies; these bookies are down: {names}",
            "start those bookies again",
        )
    ]


def _short_findings(ledger: LedgerMetadata) -> list[Finding]:
    """List where an in-sync ledger continued, or was recovered, with fewer members (rule 11.5)."""
    wanted = ledger.quorum.ensemble_size
    short = [f for f in ledger.fragments if len(f.ensemble) < wanted]
    if not short:
        return []
    least = min(len(f.ensemble) for f in short)
    what = f"entries lack copies: {least} of {wanted} exist from entry {short[0].first_entry_id} on"
    advice = (
        "wait: an open ledger's writer copies to members that return; a closed ledger needs repair"
    )
    return [Finding(f"ledger {ledger.ledger_id}", what, advice)]


def cluster_host_warnings(up: Mapping[BookieId, BookieRegistration]) -> list[Finding]:
    """Warn if there are several bookies and all of them are on one host."""
    hosts = dict.fromkeys(each.place for each in up.values())
    if len(hosts) != 1 or len(up) == 1:
        return []
    (place,) = hosts
    what = f"all {len(up)} bookies that are up are on host {place.host}: all copies fail with it"
    advice = "add bookies on other hosts; if they are on several, give each bookie its location"
    return [Finding("cluster", what, advice)]


def ledger_host_warnings(
    ledger: LedgerMetadata, up: Mapping[BookieId, BookieRegistration]
) -> list[Finding]:
    """Warn if two copies of an entry are on one host although the bookies that are up are on
    enough hosts for all copies (rule 3.3).
    """
    for fragment in ledger.fragments:
        size, width = len(fragment.ensemble), ledger.quorum_of(fragment).write_quorum
        for start in range(size):
            members = [fragment.ensemble[(start + i) % size] for i in range(width)]
            pair = _on_one_host([up[each] for each in members if each in up])
            if pair is None:
                continue
            host_count = len(dict.fromkeys(each.place for each in up.values()))
            if host_count < width:
                return []
            one, other = pair
            what = (
                f"entries from {fragment.first_entry_id} on have copies on {one.bookie_id} and"
                f" {other.bookie_id}, both on host {one.place.host}; {host_count} hosts are up"
            )
            advice = "create a new ledger to have its copies on different hosts"
            return [Finding(f"ledger {ledger.ledger_id}", what, advice)]
    return []


def _on_one_host(
    bookies: Iterable[BookieRegistration],
) -> tuple[BookieRegistration, BookieRegistration] | None:
    seen: dict[object, BookieRegistration] = {}
    for each in bookies:
        first = seen.setdefault(each.place, each)
        if first is not each:
            return first, each
    return None


def record_findings(ledger: LedgerMetadata, formatted: Collection[BookieId]) -> list[Finding]:
    """List contradictions between one ledger's record and the rest of the metadata."""
    where = f"ledger {ledger.ledger_id}"
    findings = []
    named = dict.fromkeys(bookie for each in ledger.fragments for bookie in each.ensemble)
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
