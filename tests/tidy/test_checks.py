"""The checkers find what they are for, and let its neighbours pass."""

from collections.abc import Callable

import pytest

from tests.tidy import checks
from tests.tidy.checks import Source

Checker = Callable[[Source], list[str]]

LONG_BODY = "\n".join("    x = 1" for _ in range(checks.FUNCTION_LINES_MAX))
LONG_DOCSTRING = '    """' + "\n".join("    word" for _ in range(80)) + '"""\n'
COMMENTS = "\n".join("    # why" for _ in range(80)) + "\n\n\n"

BAD = [
    (checks.find_missing_docstring, "x = 1\n"),
    (checks.find_missing_docstring, "# a comment is not a docstring\n"),
    (checks.find_long_functions, f"def f():\n{LONG_BODY}\n"),
    (checks.find_long_functions, f"class C:\n  async def f(self):\n{LONG_BODY}\n"),
    (checks.find_banned_words, "cfg = 1"),
    (checks.find_banned_words, "def send(msg): return msg"),
    (checks.find_banned_words, "class A:\n def __init__(self): self.read_buf = 1"),
    (checks.find_banned_words, "for idx in range(3): print(idx)"),
    (checks.find_set_iteration, "for x in {1, 2}: print(x)"),
    (checks.find_set_iteration, "for x in set(items): print(x)"),
    (checks.find_set_iteration, "for x in set(a) - set(b): print(x)"),
    (checks.find_set_iteration, "y = [x for x in {a for a in b}]"),
    (checks.find_set_iteration, "y = list(frozenset(a))"),
    (checks.find_set_iteration, "y = [*{a, b}]"),
    (checks.find_set_iteration, "def f(down: set[int]):\n  for x in down: print(x)"),
    (checks.find_set_iteration, "class A:\n def f(self):\n  self.a = set()\n  return list(self.a)"),
    (checks.find_joined_addresses, 'x = f"{host}:{port}"'),
    (checks.find_joined_addresses, 'x = f"http://{a.admin_host}:{a.admin_port}/readyz"'),
    (checks.find_side_doors, "path.read_text()"),
    (checks.find_side_doors, "with open(path) as file: pass"),
    (checks.find_side_doors, "loop.run_in_executor(None, f)"),
]

GOOD = [
    (checks.find_missing_docstring, '"""The job."""\n'),
    (checks.find_long_functions, f"def f():\n{LONG_DOCSTRING}{COMMENTS}    return 1\n"),
    (checks.find_banned_words, "lac = lap = rng = entry_id = 1"),
    (checks.find_banned_words, "library.cfg(msg=context)"),
    (checks.find_banned_words, "frequency = required = 1"),
    (checks.find_set_iteration, "for x in sorted({1, 2}): print(x)"),
    (checks.find_set_iteration, "for x in (1, 2): print(x)"),
    (checks.find_set_iteration, "if x in {1, 2}: print(x)"),
    (checks.find_set_iteration, "count = len(set(a)); low = min(set(a))"),
    (checks.find_set_iteration, "x = set()\nx = sorted(x)\nfor y in x: print(y)"),
    (checks.find_joined_addresses, 'x = f"{join_address(host, port)}: {why} {line}:{port}"'),
    (checks.find_side_doors, "file.append(data)"),
    (checks.find_side_doors, "file = disk.open(name)"),
]


@pytest.mark.parametrize(("checker", "text"), BAD)
def test_reports(checker: Checker, text: str) -> None:
    findings = checker(Source(text))
    assert findings
    assert all(finding.split(":")[0].isdigit() for finding in findings)


@pytest.mark.parametrize(("checker", "text"), GOOD)
def test_accepts(checker: Checker, text: str) -> None:
    assert checker(Source(text)) == []


@pytest.mark.parametrize("text", ["# Mend it.", "def _mended(): ...", "NOBODY", "a `stranger`"])
def test_archaic_words_are_reported(text: str) -> None:
    assert checks.find_archaic_words(f"fine\n{text}\n")[0].startswith("2: write ")


def test_other_words_are_not_archaic() -> None:
    assert checks.find_archaic_words("recommend an amendment to the bookie, and mendacity") == []


def test_imports_count_for_the_module_and_for_the_name() -> None:
    source = Source("import a.b\nfrom c.d import e\ndef f():\n  from g import h\n")
    assert checks.find_imports(source) == ["a.b", "c.d", "c.d.e", "g", "g.h"]
