"""Tests that every seeded bug still fits the code; they are fast, to run on every change.

`python -m tests.seeded_bugs` shows whether each is found.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.model import scopes
from tests.seeded_bugs import trees
from tests.seeded_bugs.__main__ import sample_of
from tests.seeded_bugs.catalogue import BUGS, SECURITY
from tests.seeded_bugs.families import topics_groups, topics_logs, topics_state
from tests.seeded_bugs.seeded_bug import Edit, Kind, SeededBug
from tests.seeded_bugs.trees import PatchError

AT_LEAST = 36
TOPICS = (topics_groups, topics_logs, topics_state)
CONFIGURATIONS = frozenset(scope.name for scope in scopes.FULL)
KIP = re.compile(r"KIP-\d+")
"""Rules of Kafka's protocol, which topics follow, have the numbers of its proposals."""
SECURITY_BUGS = [bug for family in SECURITY for bug in family.BUGS]
SECTION = re.compile(r"(?P<document>[\w-]+\.md)#(?P<heading>[\w-]+)")
"""Rules of security are sections of documents below docs/, and what they follow."""
STANDARD = re.compile(r"RFC \d+|CVE-\d{4}-\d+")
TEST_ID = re.compile(r"(?P<path>[\w/]+\.py)(?:::(?P<test>\w+))?")


def rules_of_the_protocol() -> frozenset[str]:
    text = (trees.ROOT / "docs/protocol.md").read_text()
    return frozenset(re.findall(r"^(\d+\.\d+) ", text, re.M))


def is_section(rule: str) -> bool:
    """Return whether a rule names a heading of a document, as links do."""
    found = SECTION.fullmatch(rule)
    if found is None:
        return False
    text = (trees.ROOT / "docs" / found["document"]).read_text()
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    anchors = [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles]
    return found["heading"] in anchors


def test_there_are_enough_bugs_with_unique_names() -> None:
    assert len(BUGS) >= AT_LEAST
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
    assert len({bug.wrong for bug in BUGS}) == len(BUGS)


def test_a_sample_is_chosen_by_its_seed() -> None:
    chosen = sample_of(BUGS, 20, "a commit")
    assert len(chosen) == 20
    assert chosen == [bug for bug in BUGS if bug in chosen]
    assert chosen == sample_of(BUGS, 20, "a commit")
    assert chosen != sample_of(BUGS, 20, "another commit")
    assert sample_of(BUGS[:3], 20, "a commit") == list(BUGS[:3])


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_patch_fits_the_code(bug: SeededBug) -> None:
    for path, text in trees.patched_files(bug, trees.ROOT).items():
        assert text != (trees.ROOT / path).read_text()
        compile(text, path, "exec", dont_inherit=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_described(bug: SeededBug) -> None:
    known = rules_of_the_protocol()
    assert bug.rules
    unknown = [rule for rule in bug.rules if rule not in known and not KIP.fullmatch(rule)]
    if bug in SECURITY_BUGS:
        unknown = [each for each in unknown if not (STANDARD.fullmatch(each) or is_section(each))]
    assert not unknown
    assert bug.wrong.endswith(".")
    assert not any(edit.path.startswith(("tests/", "docs/")) for edit in bug.edits)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_class_of_detectors_searches_or_gives_a_reason(bug: SeededBug) -> None:
    looking = [detector.kind for detector in bug.detectors]
    blind = [each.kind for each in bug.out_of_sight]
    assert looking == [kind for kind in Kind if kind in looking], "the cheapest first"
    assert not [kind for kind in looking if kind in blind]
    assert {Kind.MODEL, Kind.SIMULATION} <= {*looking, *blind}
    for detector in bug.detectors:
        if detector.kind is Kind.MODEL:
            assert detector.targets
            assert not [each for each in detector.targets if each not in CONFIGURATIONS]
        for target in detector.targets if detector.kind is Kind.UNITS else ():
            found = TEST_ID.fullmatch(target)
            assert found is not None
            text = (trees.ROOT / found["path"]).read_text()
            assert f"def {found['test'] or 'test_'}" in text, target


def test_the_document_has_a_row_for_each_bug_but_those_of_topics() -> None:
    text = (trees.ROOT / "docs/seeded-bugs.md").read_text()
    rows = set(re.findall(r"^\| (\w+) \| [\d., ]+ \|", text, re.M))
    of_topics = {bug.name for family in TOPICS for bug in family.BUGS}
    of_security = {bug.name for bug in SECURITY_BUGS}
    assert rows == {bug.name for bug in BUGS} - of_topics - of_security


def test_the_document_has_a_row_for_each_bug_of_security() -> None:
    text = (trees.ROOT / "docs/seeded-bugs.md").read_text()
    (section,) = re.findall(r"^## Security\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    rows = re.findall(r"^\| (\w+) \| (.+?) \| \d+ tests, \d+ s \|$", section, re.M)
    assert rows == [(bug.name, ", ".join(bug.rules)) for bug in SECURITY_BUGS]


def test_an_edit_that_does_not_match_once_is_refused() -> None:
    edit = Edit("a.py", "old", "new")
    assert trees.patched_text((edit,), "a.py", "the old one") == "the new one"
    assert trees.patched_text((edit,), "b.py", "the old one") == "the old one"
    for text in ("none", "old and old"):
        with pytest.raises(PatchError):
            trees.patched_text((edit,), "a.py", text)


def test_a_copy_takes_a_patch(tmp_path: Path) -> None:
    trees.copy_listed(trees.ROOT, tmp_path)
    bug = BUGS[0]
    before = (tmp_path / bug.edits[0].path).read_text()
    trees.apply_bug(bug, tmp_path)
    after = (tmp_path / bug.edits[0].path).read_text()
    assert before != after
    assert (trees.ROOT / bug.edits[0].path).read_text() == before
    assert trees.environment(tmp_path)["PYTHONPATH"] == str(tmp_path)
