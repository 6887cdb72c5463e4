"""deploy/requirements.lock has what pyproject.toml asks for, with hashes, and nothing else."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import RELEASES
from tests.supply_chain.lock_file import PROJECT, LockedPackage, parse_lock

ROOT = Path(__file__).parents[2]
LOCK_TEXT = (ROOT / "deploy" / "requirements.lock").read_text()
LOCKED = {package.name: package for package in parse_lock(LOCK_TEXT)}
EXTRAS = ("server", "broker", "console")
"""What a bookie and a broker need; `make lock` names the same."""
ONE = f"one==1.0 \\\n    --hash=sha256:{'0' * 64}\n    # via quire-ledger (pyproject.toml)\n"


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    """Return the project's requirements, with those of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    found = [Requirement(text) for text in texts]
    inner = {
        extra
        for requirement in found
        if requirement.name == project["name"]
        for extra in requirement.extras
    }
    assert inner <= set(extras)
    return [requirement for requirement in found if requirement.name != project["name"]]


@pytest.mark.parametrize("requirement", wanted(EXTRAS), ids=lambda each: each.name)
def test_a_requirement_is_locked_within_its_range(requirement: Requirement) -> None:
    locked = LOCKED.get(canonicalize_name(requirement.name))
    assert locked is not None, "run make lock"
    assert requirement.specifier.contains(locked.version), "run make lock"
    assert PROJECT in locked.required_by


def test_every_package_is_needed() -> None:
    direct = {canonicalize_name(requirement.name) for requirement in wanted(EXTRAS)}
    assert unneeded(LOCKED, direct) == []


def unneeded(locked: dict[str, LockedPackage], direct: Collection[str]) -> list[str]:
    """Return the packages that no path of reasons connects with the project's requirements."""
    reached, count = set(direct), 0
    while len(reached) > count:
        count = len(reached)
        reached |= {name for name, package in locked.items() if reached & {*package.required_by}}
    return sorted(locked.keys() - reached)


def test_each_supported_python_finds_every_requirement() -> None:
    """Lines of a requirement have no marker that leaves a supported release of Python out."""
    for requirement in wanted(EXTRAS):
        marker = LOCKED[canonicalize_name(requirement.name)].requirement.marker
        for version in RELEASES:
            linux = {
                "python_version": version,
                "python_full_version": f"{version}.0",
                "sys_platform": "linux",
                "platform_python_implementation": "CPython",
                "implementation_name": "cpython",
            }
            assert marker is None or marker.evaluate(linux)


def test_the_file_names_no_index_and_no_place() -> None:
    assert not re.findall(r"https?:|--(?:extra-)?index|--find-links|--trusted|file:|@", LOCK_TEXT)


def test_what_is_not_needed_is_found() -> None:
    text = (
        ONE + ONE.replace("one", "two") + ONE.replace("one", "three").replace("quire-ledger", "two")
    )
    packages = {
        package.name: package for package in parse_lock(text.replace("two (pyproject.toml)", "two"))
    }
    assert unneeded(packages, {"one"}) == ["three", "two"]
    assert unneeded(packages, {"one", "two"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "one==1.0\n",
        ONE.replace("==", ">="),
        ONE.replace("==1.0", ""),
        ONE.replace("sha256", "md5"),
        ONE.replace("one==1.0", "one @ https://example.org/one.whl"),
        "--index-url https://example.org\n" + ONE,
    ],
)
def test_a_line_without_a_version_and_hashes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_lock(text)
