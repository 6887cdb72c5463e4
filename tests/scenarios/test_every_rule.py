"""Every rule of the protocol that is built has a transcript, and every transcript names its rules.

Leaves that code and tests cite the rules to `tests/tidy/test_rules.py`, whose reading of
`docs/protocol.md` (sections 1-8 and 10) this shares, and playing the files to `test_scenarios.py`.

Invariant: a citation counts only in the comments at the top of a file, where it says what the
transcript is for.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.scenarios import runner
from tests.tidy.test_rules import ROOT, RULE, RULES, cited

KNOWN: Final = RULE.findall((ROOT / "docs/protocol.md").read_text())
"""All rules, also those that are not built: a transcript may name one, such as a repair's."""


def cited_by(path: Path) -> set[str]:
    """Return the rules that the comments at the top of a transcript name."""
    return cited(runner.parse(path.name, path.read_text()).comments, KNOWN)


def test_the_rules_are_those_of_sections_1_to_8_and_10() -> None:
    assert {rule.split(".")[0] for rule in RULES} == {*"12345678", "10"}
    assert (RULES[0], RULES[-1]) == ("1.1", "10.2")
    assert len(RULES) == len(set(RULES))


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_has_a_scenario(rule: str) -> None:
    assert [path.name for path in runner.scenario_files() if rule in cited_by(path)]


@pytest.mark.parametrize("path", runner.scenario_files(), ids=lambda path: path.stem)
def test_the_scenario_names_its_rules(path: Path) -> None:
    found = cited_by(path)
    assert found, "say at the top which rule it shows: (protocol 7.3)"
    assert sorted(found.difference(KNOWN)) == []
