"""The weight of the repository is counted by kind of line."""

from collections import Counter
from pathlib import Path

import pytest

from tests import weight

SHORT = """\
'A job.'

import os
from a import b


# Why.
def run() -> None:
    'Run.'
    print(os, b)
"""


def test_lines_are_counted_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "ROOT", tmp_path)
    (tmp_path / "short.py").write_text(SHORT)
    (tmp_path / "user.py").write_text("from short import run\n\nrun()\n")
    (tmp_path / "other.py").write_text("import user, short\n")

    modules = [weight.Module(name) for name in ("short.py", "user.py", "other.py")]

    kinds = {"docstrings": 2, "imports": 2, "comments": 1, "code": 2, "blank": 3}
    assert modules[0].lines == Counter(kinds)
    assert weight.slivers(modules) == {"user"}
    assert weight.table(modules).splitlines()[-1].split()[:4] == ["all", "3", "1", "14"]
