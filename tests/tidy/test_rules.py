"""Every rule of the protocol that is built is cited by the code that keeps it and by a test."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("metadata", "bookie", "ledger_client")
NOT_BUILT = frozenset({"9"})
RULE = re.compile(r"^(\d{1,2}\.\d{1,2}) ", re.MULTILINE)
CITED = re.compile(r"(?<![\d.])(\d{1,2}\.\d{1,2})(?:-(\d{1,2}\.\d{1,2}))?(?!\d|\.\d)")


def built_rules(text: str) -> list[str]:
    return [rule for rule in RULE.findall(text) if rule.split(".")[0] not in NOT_BUILT]


def cited(texts: Iterable[str], rules: list[str]) -> set[str]:
    """Return the rules that texts cite, singly (4.4) or as a range (4.4-4.6)."""
    found: set[str] = set()
    for text in texts:
        for first, last in CITED.findall(text):
            found.add(first)
            if last and first in rules and last in rules:
                found.update(rules[rules.index(first) : rules.index(last) + 1])
    return found


def texts_below(*directories: str, suffixes: tuple[str, ...] = (".py",)) -> list[str]:
    return [
        path.read_text()
        for directory in directories
        for path in sorted((ROOT / directory).rglob("*"))
        if path.suffix in suffixes
    ]


RULES = built_rules((ROOT / "docs/protocol.md").read_text())


def test_the_rules_are_found() -> None:
    assert RULES[0] == "1.1"
    assert "7.4" in RULES
    assert "9.1" not in RULES


def test_citations_are_read_singly_and_as_ranges() -> None:
    rules = ["4.4", "4.5", "4.6"]
    assert cited(["see rules 4.4-4.6, not Python 3.11.7"], rules) == {"4.4", "4.5", "4.6"}
    assert cited(["as rule 4.5."], rules) == {"4.5"}


@pytest.mark.parametrize("where", ["code", "tests"])
def test_every_rule_is_cited(where: str) -> None:
    texts = (
        texts_below(*PRODUCT) if where == "code" else texts_below("tests", suffixes=(".py", ".txt"))
    )
    found = cited(texts, RULES)
    assert [rule for rule in RULES if rule not in found] == []
