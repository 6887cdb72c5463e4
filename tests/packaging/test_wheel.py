"""The wheel and the sdist have what an installation needs, and nothing else."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from quire.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "root_packages"
]
DATA = ("py.typed", "*.jar", "*.html", "*.css", "*.js", "*.svg", "NOTICE", "LICENSE*")
"""Files of packages that are not modules."""

pytestmark = [pytest.mark.integration, pytest.mark.packages]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it, as a release does."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    directory = tmp_path_factory.mktemp("dist")
    for target in ("sdist", "wheel"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def names(built: Path) -> set[str]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        return set(wheel.namelist())


def test_the_wheel_has_every_module_and_every_file_of_the_packages(names: set[str]) -> None:
    for package in PACKAGES:
        wanted = list((ROOT / package).rglob("*.py"))
        for pattern in DATA:
            wanted += (ROOT / package).rglob(pattern)
        missing = {str(each.relative_to(ROOT)) for each in wanted} - names
        assert not missing
        assert f"{package}/py.typed" in names


def test_the_wheel_has_manual_pages_and_the_licence(names: set[str]) -> None:
    pages = {path.name for path in (ROOT / "docs" / "man").iterdir()}
    assert pages == {Path(name).name for name in names if "share/man/man1/" in name}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_has_the_examples(names: set[str]) -> None:
    examples = {path.name for path in (ROOT / "docs" / "examples").glob("*.py")}
    assert examples == {Path(name).name for name in names if "share/doc/quire/examples/" in name}


def test_the_wheel_has_nothing_else(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    about = DISTRIBUTION.replace("-", "_") + "-"
    assert {top for top in tops if not top.startswith(about)} == {*PACKAGES}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_the_version_is_the_one_of_the_project(built: Path, names: set[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        (name,) = (each for each in names if each.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == project["version"]
    assert metadata["Requires-Python"] == project["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


def test_a_wheel_can_be_built_from_the_sdist(built: Path, names: set[str], tmp_path: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as again:
        assert set(again.namelist()) == names
