"""The runner of `make test-pythons`, with commands instead of make."""

import pytest

from tests.packaging.environments import PROJECT, RELEASES
from tests.packaging.every_release import main

OLDEST, *_, NEWEST = RELEASES


@pytest.mark.parametrize(("make", "status"), [("true", 0), ("false", 1)])
def test_a_line_for_each_release_says_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make: str, status: int
) -> None:
    monkeypatch.setenv("MAKE", make)
    assert main([], {NEWEST: "python"}) == status
    *missing, last = capsys.readouterr().out.splitlines()[1:]
    assert last == f"{NEWEST}  {'failed' if status else 'passed'}"
    assert [each.partition(": ")[0] for each in missing] == [
        f"{release}  not found" for release in RELEASES[:-1]
    ]


def test_only_the_wanted_releases_are_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAKE", "true")
    assert main([OLDEST], dict.fromkeys(RELEASES, "python")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{OLDEST}  passed"
    assert main(["2.7"], {}) == 2


def test_the_oldest_release_is_the_one_that_an_installation_requires() -> None:
    assert PROJECT["requires-python"] == f">={OLDEST}"
