"""Findings about a ledger depend on which of its bookies are up."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.registry.registration import BookieRegistration
from quire.assessment import (
    bookie_findings,
    cluster_host_warnings,
    down_findings,
    health_sentence,
    ledger_findings,
    ledger_host_warnings,
    record_findings,
)

A, B, C, D = (BookieId(name) for name in "abcd")
LEDGER = LedgerMetadata(
    ledger_id=LedgerId(7),
    state=LedgerState.OPEN,
    quorum=QuorumSpec(3, 3, 2),
    fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(10), (A, B, D))),
    digest=DigestType.CRC32C,
    created_ms=0,
    creation_token=UpdateToken(bytes(16)),
    update_token=UpdateToken(bytes(16)),
    writer=ClientId("client"),
)


def test_a_healthy_cluster_has_no_findings() -> None:
    assert ledger_findings(LEDGER, [A, B, C, D]) == []


def test_findings_name_the_bookies_and_what_to_do() -> None:
    (short,) = ledger_findings(LEDGER, [A, B, D])
    assert short.what == "entries lack copies; these bookies are down: c"
    (at_risk,) = ledger_findings(LEDGER, [B, C])
    assert "entries from 10 on" in at_risk.what
    assert "down: a, d" in at_risk.what


def test_copies_on_one_host_cause_a_warning_if_there_are_other_hosts() -> None:
    def up(**hosts: str) -> dict[BookieId, BookieRegistration]:
        return {
            BookieId(name): BookieRegistration(BookieId(name), "", 1, location=f"/r/1/{host}")
            for name, host in hosts.items()
        }

    assert ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h3", d="h4")) == []
    (warning,) = ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h3", d="h2"))
    assert warning.where == "ledger 7"
    assert "entries from 10 on have copies on b and d, both on host h2; 3 hosts" in warning.what
    assert ledger_host_warnings(LEDGER, up(a="h1", b="h2", c="h1", d="h2")) == []  # two hosts only
    striped = replace(
        LEDGER, quorum=QuorumSpec(4, 2, 2), fragments=(Fragment(EntryId(0), (A, B, C, D)),)
    )
    assert ledger_host_warnings(striped, up(a="h1", b="h2", c="h1", d="h2")) == []
    assert len(ledger_host_warnings(striped, up(a="h1", b="h2", c="h2", d="h3"))) == 1


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
    assert ["it ends at 8" in each.what for each in record_findings(closed, [A, B, C, D])] == [True]


def test_a_bookies_registered_reasons_become_findings() -> None:
    well = BookieRegistration(A, "host", 1)
    assert bookie_findings(well) == []
    full = replace(well, writable=False, features=("condition:disk-full", "condition:limbo", "x"))
    assert [(each.where, each.advice.split()[0]) for each in bookie_findings(full)] == [
        ("bookie a", "delete"),
        ("bookie a", "replace"),
    ]
    operator = replace(well, writable=False, features=("condition:operator", "condition:newer"))
    (finding,) = bookie_findings(operator)
    assert finding.advice == "quire bookie readonly a off"
    for features in ((), ("condition:limbo",), ("condition:newer",)):
        findings = bookie_findings(replace(well, writable=False, features=features))
        assert findings[-1].advice == "quire bookie info a shows why"


def test_a_bookie_that_is_down_is_a_problem_only_if_ledgers_have_entries_on_it() -> None:
    known, up = [A, B, C], [A]
    problems, warnings = down_findings(known, up, {B: 4})
    assert [(each.where, each.what) for each in problems] == [
        ("bookie b", "is not up; 4 ledgers have entries on it")
    ]
    assert [(each.where, each.what) for each in warnings] == [
        ("bookie c", "is not up, and no ledger has entries on it")
    ]
    problems, warnings = down_findings(known, up, None)
    assert [each.what for each in problems] == ["is not up", "is not up"]
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
