"""Tests that every rule of the protocol has a transcript, and that transcripts name rules.

Leaves citations in code and tests to `tests/tidy/test_rules.py`, whose parser of
`docs/protocol.md` is used here, and playing the files to `test_scenarios.py`.

Invariant: a citation counts only in the comments at the top of a file, which state the
purpose of the transcript.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.scenarios import runner
from tests.tidy.test_rules import ROOT, RULE, cited

KNOWN: Final = RULE.findall((ROOT / "docs/protocol.md").read_text())
WITHOUT_TRANSCRIPT: Final = ("9.4", "11.6")
"""The full check and unclean recovery are no protocols of events and actions, so no transcript can
play them.
"""
DEMANDED: Final = [rule for rule in KNOWN if rule not in WITHOUT_TRANSCRIPT]


def cited_by(path: Path) -> set[str]:
    """Return the rules that the comments at the top of a transcript name."""
    return cited(runner.parse(path.name, path.read_text()).comments, KNOWN)


def test_the_rules_are_those_of_all_sections() -> None:
    assert {rule.split(".")[0] for rule in DEMANDED} == {*"123456789", "10", "11", "12"}
    assert (DEMANDED[0], DEMANDED[-1]) == ("1.1", "12.6")
    assert len(DEMANDED) == len(set(DEMANDED))


@pytest.mark.parametrize("rule", DEMANDED)
def test_the_rule_has_a_scenario(rule: str) -> None:
    assert [path.name for path in runner.scenario_files() if rule in cited_by(path)]


@pytest.mark.parametrize("path", runner.scenario_files(), ids=runner.name_of)
def test_the_scenario_names_its_rules(path: Path) -> None:
    found = cited_by(path)
    assert found, "say at the top which rule it shows: (protocol 7.3)"
    assert sorted(found.difference(KNOWN)) == []
