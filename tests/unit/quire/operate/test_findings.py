"""Ledgers with the same problem make one finding."""

from metadata.ids import BookieId, LedgerId
from quire.operate.findings import (
    NAMES_SHOWN_MAX,
    Finding,
    LedgerFinding,
    LedgerGroups,
    by_advice,
    names,
)

NO_COPY, SHORT = "no copy may be left", "2 of 3 copies exist"


def found(ledger_id: int, cause: str, *down: str) -> LedgerFinding:
    bookies = tuple(map(BookieId, down))
    return LedgerFinding(LedgerId(ledger_id), cause, f"{cause} from entry 5 on", "wait", bookies)


def findings(*each: LedgerFinding) -> list[tuple[str, str]]:
    groups = LedgerGroups()
    groups.add(each)
    return [(one.where, one.what) for one in groups.findings()]


def test_one_ledger_keeps_its_details() -> None:
    assert findings(found(7, NO_COPY, "a")) == [("ledger 7", "no copy may be left from entry 5 on")]


def test_many_ledgers_make_one_finding_with_examples() -> None:
    many = [found(number, NO_COPY, "ab"[number % 2]) for number in range(5_000)]
    assert findings(*many, found(9, SHORT), found(10, SHORT)) == [
        (
            "5000 ledgers",
            "no copy may be left; these bookies are down: a, b (for example 0, 1, 2)",
        ),
        ("2 ledgers", "2 of 3 copies exist (9, 10)"),
    ]


def test_what_the_findings_about_bookies_say_makes_no_group() -> None:
    assert findings(found(7, "", "a")) == []


def test_the_json_form_has_the_number_and_the_first_ids() -> None:
    assert Finding("bookie a", "is not up", "start it").as_json() == {
        "where": "bookie a",
        "what": "is not up",
        "advice": "start it",
    }
    groups = LedgerGroups()
    groups.add(found(number, SHORT) for number in range(5))
    (finding,) = groups.findings()
    row = finding.as_json()
    assert (row["ledger_count"], row["example_ledgers"]) == (5, [0, 1, 2])


def test_few_names_are_shown() -> None:
    bookies = [BookieId(f"b{number}") for number in range(NAMES_SHOWN_MAX + 2)]
    assert names(bookies[:2]) == "b0, b1"
    assert names(bookies).endswith("b9 and 2 more")


def test_advice_is_given_once() -> None:
    rows = [Finding("a", "is down", "start it"), Finding("b", "is full", "make room")]
    rows += [
        Finding("c", "is down", "start it"),
        Finding("d", "left", ""),
        Finding("e", "left", ""),
    ]
    assert [(finding.where, finding.advice) for finding in by_advice(rows)] == [
        ("a", "start it"),
        ("c", "as above"),
        ("b", "make room"),
        ("d", ""),
        ("e", ""),
    ]
