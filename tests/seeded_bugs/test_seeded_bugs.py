"""Tests that every seeded bug still fits the code; they are fast, to run on every change.

`python -m tests.seeded_bugs` shows whether each is found.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.model import scopes
from tests.seeded_bugs import trees
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.seeded_bug import Edit, Kind, SeededBug
from tests.seeded_bugs.trees import PatchError
from tests.simulation.plan import THEMES
from tests.simulation.topics.topic_plan import THEMES as TOPIC_THEMES

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
KIP = re.compile(r"KIP-\d+")
"""Rules of Kafka's protocol, which topics follow, have the numbers of its proposals."""
PARTS = {
    Kind.MODEL: {scope.name for scope in scopes.FULL},
    Kind.SIMULATION: {"", *THEMES},
    Kind.TOPICS: {"", *TOPIC_THEMES},
}


def rules_of_the_protocol() -> frozenset[str]:
    text = (trees.ROOT / "docs/protocol.md").read_text()
    return frozenset(re.findall(r"^(\d+\.\d+) ", text, re.M))


def test_names_and_descriptions_are_unique() -> None:
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
    assert len({bug.wrong for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_patch_fits_the_code(bug: SeededBug) -> None:
    for path, text in trees.patched_files(bug, trees.ROOT).items():
        assert text != (trees.ROOT / path).read_text()
        compile(text, path, "exec", dont_inherit=True)


def test_bugs_are_described() -> None:
    known = rules_of_the_protocol()
    for bug in BUGS:
        assert NAME.fullmatch(bug.name)
        assert bug.rules
        assert not [rule for rule in bug.rules if rule not in known and not KIP.fullmatch(rule)]
        assert bug.wrong.endswith(".")
        assert not any(path.startswith(("tests/", "docs/")) for path in bug.paths)
        assert bug.searches
        assert not [search for search in bug.searches if search.part not in PARTS[search.kind]]


@pytest.mark.parametrize(
    ("kind", "themes"), [(Kind.SIMULATION, THEMES), (Kind.TOPICS, TOPIC_THEMES)]
)
def test_every_theme_finds_a_bug(kind: Kind, themes: dict[str, tuple[str, ...]]) -> None:
    used = {search.part for bug in BUGS for search in bug.searches if search.kind is kind}
    assert {theme for theme in themes if themes[theme]} <= used


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


def test_changed_files_are_those_since_a_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        command = ["git", *identity, "-c", "commit.gpgsign=false", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("old")
        git("add", name)
        git("commit", "-m", f"Add {name}")
    (tmp_path / "a.py").write_text("new")
    assert trees.changed_files(tmp_path, "HEAD") == {"a.py"}
    assert trees.changed_files(tmp_path, "HEAD~1") == {"a.py", "c.py"}
    assert trees.changed_files(tmp_path, "HEAD~2..HEAD~1") == {"b.py"}
    with pytest.raises(subprocess.CalledProcessError):
        trees.changed_files(tmp_path, "unknown")
