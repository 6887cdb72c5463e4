"""Findings about a ledger depend on which of its bookies are up."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import (
    Fragment,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from quire.operate.assessment import (
    NO_COPY,
    START,
    START_REPAIR,
    WAIT,
    bookie_findings,
    cluster_host_warnings,
    down_findings,
    health_sentence,
    ledger_findings,
    ledger_host_warnings,
    planned_warnings,
    record_findings,
    state_findings,
)
from quire.operate.findings import LedgerSample
from tests.support.sample_ledgers import ledger_of

A, B, C, D = (BookieId(name) for name in "abcd")
LEDGER = ledger_of((0, "abc"), (10, "abd"))


def sample(count: int) -> LedgerSample:
    found = LedgerSample()
    for number in range(count):
        found.add(LedgerId(number))
    return found


def test_a_healthy_cluster_has_no_findings() -> None:
    assert ledger_findings(LEDGER, [A, B, C, D]) == []


def test_a_striped_ledger_has_as_many_copies_as_its_write_quorum() -> None:
    fragments = (Fragment(EntryId(0), (A, B, C)),)
    ledger = replace(LEDGER, quorum=QuorumSpec(3, 2, 2), fragments=fragments)
    assert ledger_findings(ledger, [A, B, C]) == []


def test_a_short_in_sync_fragment_lacks_copies_only_if_it_has_entries() -> None:
    fragments = (Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(10), (A, B)))
    quorum = QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC, min_in_sync=2)
    ledger = replace(LEDGER, quorum=quorum, fragments=fragments)
    longer = replace(ledger, state=LedgerState.CLOSED, last_entry_id=EntryId(10), length=9)
    everywhere = [A, B, C]
    for metadata in (ledger, longer):
        (short,) = ledger_findings(metadata, everywhere)
        assert short.what == "entries lack copies: 2 of 3 exist from entry 10 on"
    assert ledger_findings(replace(longer, last_entry_id=EntryId(9)), everywhere) == []


def test_findings_name_the_bookies_and_what_to_do() -> None:
    (short,) = ledger_findings(LEDGER, [A, B, D])
    assert short.what == "entries lack copies; these bookies are down: c"
    assert (short.cause, short.down) == ("", (C,)), "the finding about the bookie says it"
    (at_risk,) = ledger_findings(LEDGER, [B, C])
    assert "entries from 10 on" in at_risk.what
    assert "down: a, d" in at_risk.what
    assert (at_risk.cause, at_risk.down) == (NO_COPY, (A, D))


def test_copies_on_one_host_cause_a_warning_if_there_are_other_hosts() -> None:
    def up(**hosts: str) -> dict[BookieId, BookieRegistration]:
        return {
            BookieId(name): BookieRegistration(BookieId(name), "", 1, location=f"/r/1/{host}")
            for name, host in hosts.items()
        }

    assert ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h3", d="h4")) == []
    (warning,) = ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h3", d="h2"))
    assert warning.ledger_id == 7
    assert warning.cause == "entries have two copies on host h2; 3 hosts are up"
    assert "entries from 10 on have copies on b and d, both on host h2; 3 hosts" in warning.what
    assert ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h1", d="h2")) == []  # two hosts only
    striped = replace(
        LEDGER, quorum=QuorumSpec(4, 2, 2), fragments=(Fragment(EntryId(0), (A, B, C, D)),)
    )
    assert ledger_host_warnings(striped, up(a="h1", b="h2", c="h1", d="h2")) == []
    assert len(ledger_host_warnings(striped, up(a="h1", b="h2", c="h2", d="h3"))) == 1
    ended = replace(LEDGER, state=LedgerState.CLOSED, last_entry_id=EntryId(9), length=10)
    assert ledger_host_warnings(ended, up(a="h1", b="h2", c="h3", d="h2")) == [], "no entry is on d"
    short = replace(striped, state=LedgerState.CLOSED, last_entry_id=EntryId(9), length=10)
    assert ledger_host_warnings(short, up(a="h1", b="h2", c="h2", d="h3")) == [], "one stripe"


def test_a_cluster_on_one_host_causes_a_warning() -> None:
    def up(*addresses: str) -> dict[BookieId, BookieRegistration]:
        names = [BookieId(f"bookie-{number}") for number, _ in enumerate(addresses)]
        return {b: BookieRegistration(b, at, 1) for b, at in zip(names, addresses, strict=True)}

    (warning,) = cluster_host_warnings(up("127.0.0.1", "127.0.0.1", "localhost"))
    assert "all 3 bookies" in warning.what
    for enough in ((), ("127.0.0.1",), ("10.0.0.1", "10.0.0.2")):
        assert cluster_host_warnings(up(*enough)) == []


def test_a_record_that_names_unknown_bookies_is_found() -> None:
    assert record_findings(LEDGER, [A, B, C, D]) == []
    (finding,) = record_findings(LEDGER, [A, B, C])
    assert "no cookie: d" in finding.what


def test_a_fragment_after_the_end_is_found() -> None:
    closed = replace(LEDGER, state=LedgerState.CLOSED, last_entry_id=EntryId(8), length=9)
    assert [
        "it ends at 8" in finding.what for finding in record_findings(closed, [A, B, C, D])
    ] == [True]


def test_a_bookies_registered_reasons_become_findings() -> None:
    well = BookieRegistration(A, "host", 1)
    assert bookie_findings(well) == []
    full = replace(well, writable=False, features=("condition:disk-full", "condition:limbo", "x"))
    assert [
        (bookie_finding.where, bookie_finding.advice.split()[0])
        for bookie_finding in bookie_findings(full)
    ] == [
        ("bookie a", "delete"),
        ("bookie a", "keep"),
    ]
    operator = replace(well, writable=False, features=("condition:operator", "condition:newer"))
    (finding,) = bookie_findings(operator)
    assert finding.advice == "quire bookie readonly a off"
    for features in ((), ("condition:limbo",), ("condition:newer",)):
        findings = bookie_findings(replace(well, writable=False, features=features))
        assert findings[-1].advice == "quire bookie info a shows why"


@pytest.mark.parametrize("state", [Lifecycle.DRAINING, Lifecycle.DRAINED])
def test_a_bookie_that_drains_takes_no_new_entries_as_planned(state: Lifecycle) -> None:
    bookie = BookieRegistration(A, "host", 1, writable=False, features=(f"condition:{state}",))
    assert bookie_findings(bookie, state) == []
    assert [finding.what for finding in bookie_findings(bookie)] == ["takes no new entries"]
    full = replace(bookie, features=("condition:disk-full",))
    assert len(bookie_findings(full, state)) == 1


def test_bookies_that_drain_are_warnings() -> None:
    states = {
        A: BookieLifecycle(Lifecycle.DRAINING, 5, "old machine"),
        B: BookieLifecycle(Lifecycle.DRAINED),
        C: BookieLifecycle(Lifecycle.LOST),
        D: BookieLifecycle(Lifecycle.REMOVED),
    }
    assert [
        (warning.where, warning.what, warning.advice) for warning in planned_warnings(states)
    ] == [
        ("bookie a", "is draining: old machine", "wait: quire repair status shows what is left"),
        ("bookie b", "is drained", "quire bookie remove b"),
    ]


def test_a_bookie_in_limbo_is_a_problem_until_it_is_drained() -> None:
    features = ("condition:limbo", "condition:fences-lost", "condition:draining")
    bookie = BookieRegistration(A, "host", 1, writable=False, features=features)
    assert [bookie_finding.what[:14] for bookie_finding in bookie_findings(bookie)] == [
        "answers UNKNOW",
        "accepts no new",
    ]
    for state in (Lifecycle.LIMBO, Lifecycle.DRAINED):
        assert bookie_findings(bookie, state) == []
    states = {
        A: BookieLifecycle(Lifecycle.LIMBO, 5, "data may be lost"),
        B: BookieLifecycle(Lifecycle.LIMBO, 5, "data may be lost"),
    }
    (finding,) = state_findings(states, [A])
    assert (finding.where, finding.what) == ("bookie a", "is in limbo: data may be lost")
    assert finding.advice.startswith("keep it up, and wait: quire repair status")
    assert finding.advice.endswith("quire bookie remove a")
    unreadable = {C: BookieLifecycle(Lifecycle.UNREADABLE, reason="version 99")}
    (finding,) = state_findings(unreadable, [])
    assert (finding.where, finding.what) == ("bookie c", "its state cannot be read: version 99")
    assert finding.advice.endswith("quire bookie drain c")
    (problem,), _ = down_findings([A, B], [A], None, states)
    assert (problem.where, problem.what) == ("bookie b", "is in limbo, and not up")
    assert planned_warnings({A: BookieLifecycle(Lifecycle.DRAINED)})[0].advice.endswith("remove a")


def test_a_bookie_that_is_lost_is_a_problem_until_nothing_is_on_it() -> None:
    states = {B: BookieLifecycle(Lifecycle.LOST), C: BookieLifecycle(Lifecycle.REMOVED)}
    problems, warnings = down_findings([A, B, C], [A], {B: sample(4), C: sample(1)}, states)
    assert [(problem.what, problem.advice) for problem in problems] == [
        (
            "is lost; 4 ledgers have entries on it (for example 0, 1, 2)",
            f"{START}; if its disk is gone, {WAIT}",
        ),
        (
            "is removed; ledger 0 has entries on it",
            "wait for repair: quire repair status shows what is left",
        ),
    ]
    assert warnings == []
    problems, warnings = down_findings([A, B, C], [A], {}, states)
    assert problems == []
    assert [(warning.what, warning.advice) for warning in warnings] == [
        (
            "is lost, and no ledger has entries on it",
            "start it: quire bookie run --data-dir DIR, or quire bookie remove b: no data depends "
            "on it",
        )
    ]


def test_a_bookie_that_is_down_is_a_problem_only_if_ledgers_have_entries_on_it() -> None:
    known, up = [A, B, C], [A]
    problems, warnings = down_findings(known, up, {B: sample(2), D: sample(1)})
    assert [(problem.where, problem.what) for problem in problems] == [
        ("bookie b", "is not up; 2 ledgers have entries on it (0, 1)"),
        ("bookie d", "has no cookie; ledger 0 has entries on it"),
    ]
    assert [(warning.where, warning.what) for warning in warnings] == [
        ("bookie c", "is not up, and no ledger has entries on it")
    ]
    problems, _ = down_findings(known, up, {B: sample(2)}, is_repaired=False)
    assert problems[0].advice == f"{START}; if its disk is gone, {START_REPAIR}"
    problems, warnings = down_findings(known, up, None)
    assert [problem.what for problem in problems] == ["is not up", "is not up"]
    assert warnings == []


@pytest.mark.parametrize(
    ("problems", "certain", "state", "what"),
    [
        (
            0,
            {2: 41},
            "Healthy",
            "losing any one bookie keeps all data; losing 2 could hide 41 ledgers",
        ),
        (
            0,
            {3: 1, 4: 9},
            "Healthy",
            "losing any 2 bookies keeps all data; losing 3 could hide one ledger",
        ),
        (0, {1: 2}, "Healthy", "losing one bookie could hide 2 ledgers"),
        (0, {}, "Healthy", "there are no entries"),
        (0, None, "Healthy", "ledgers were not checked"),
        (1, {0: 1, 2: 5}, "Not healthy, one problem", "one ledger may have entries without a copy"),
        (2, {1: 1}, "Not healthy, 2 problems", "losing one bookie could hide one ledger"),
    ],
)
def test_one_sentence_states_the_health(
    problems: int, certain: dict[int, int] | None, state: str, what: str
) -> None:
    assert health_sentence(problems, certain) == f"{state}: {what}."
