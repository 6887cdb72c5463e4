"""Every module that git tracks keeps the shape this project asks for.

It leaves style that a linter can see to ruff, and import direction to import-linter.
"""

import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import FIRST
from tests.tidy import checks
from tests.tidy.checks import Source

ROOT = Path(__file__).parents[2]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PRODUCT_PACKAGES = tuple(TOOLS["hatch"]["build"]["targets"]["wheel"]["packages"])

# The doors to files, threads and processes; per-file-ignores in ruff.toml name the same.
DOORS = (
    "bookie/files/*.py",
    "bookie/storage/disk_watch.py",
    "metadata/store/zookeeper/*.py",
    "metadata/store/embedded*.py",
    "ledger_client/sync.py",
    "ledger_client/sync_*.py",
    "ledger_client/encryption/keys.py",
    "ledger_client/cluster_access.py",
    "spark_io/launching.py",
    "spark_io/common_options.py",
    "quire/identity/secret_files.py",
    "quire/identity/client_file.py",
    "quire/identity/tls.py",
    "quire/identity/sasl_access.py",
    "quire/server/slow_work.py",
    "*/main.py",
)
# Parts of `quire` that the protocol uses; the others are edges of processes, for which only shape
# is checked.
USED_BELOW = ("identity", "server", "tracing", "repair", "gateway")

# Modules that decide or translate bytes; the import-linter contract lists each once it exists,
# as it refuses to name a module that does not.
PURE_MODULES = (
    "metadata.ids",
    "metadata.ledgers.ledger_metadata",
    "metadata.ledgers.codec",
    "metadata.ledgers.chain",
    "metadata.topics.topic",
    "metadata.topics.partition",
    "metadata.brokers.broker_registration",
    "metadata.topics.in_sync",
    "bookie.wire",
    "bookie.index.replica_state",
    "bookie.log.records",
    "ledger_client.protocol",
)
PURITY_CONTRACT = "Pure modules see no clock, randomness, socket, file or thread"

# Folders of tests/ whose modules have unit tests, in folders of the same name.
TESTED_SUPPORT = ("campaign", "ci", "judge", "kafka", "simulation")

PROSE_SUFFIXES = (".py", ".md", ".txt", ".toml", "Makefile")
WORD_LISTS = ("tests/tidy/checks.py", "tests/tidy/test_checks.py")

# A place on one machine has no business here; joined so that this line does not match itself.
MACHINE_PATHS = ("/" + "work/", "/" + "root/")


def _tracked() -> list[str]:
    listing = subprocess.run(  # paths only, NUL between them
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in listing.stdout.split("\0") if path and (ROOT / path).is_file()]


TRACKED = _tracked()
MODULES = {path: Source((ROOT / path).read_text()) for path in TRACKED if path.endswith(".py")}
PRODUCT = {path: MODULES[path] for path in MODULES if path.split("/")[0] in PRODUCT_PACKAGES}
PROTOCOL = {
    path: PRODUCT[path]
    for path in PRODUCT
    if not path.startswith("quire/") or path.split("/")[1] in USED_BELOW
}
BEHIND_DOORS = {
    path: source
    for path, source in PROTOCOL.items()
    if not any(PurePosixPath(path).match(door) for door in DOORS)
}
WITH_ADDRESSES = {path: PRODUCT[path] for path in PRODUCT if path != "quire/addresses.py"}

RULES = [
    (checks.find_missing_docstring, PRODUCT),
    (checks.find_long_functions, PRODUCT),
    (checks.find_banned_words, PRODUCT),
    (checks.find_joined_addresses, WITH_ADDRESSES),
    (checks.find_set_iteration, PROTOCOL),
    (checks.find_side_doors, BEHIND_DOORS),
]


@pytest.mark.parametrize(("checker", "modules"), RULES, ids=[rule[0].__name__ for rule in RULES])
def test_modules_keep(checker: Callable[[Source], list[str]], modules: dict[str, Source]) -> None:
    findings = [f"{path}:{line}" for path, source in modules.items() for line in checker(source)]
    assert not findings, "\n" + "\n".join(findings)


def test_texts_are_in_plain_english() -> None:
    findings = [
        f"{path}:{line}"
        for path in TRACKED
        if path.endswith(PROSE_SUFFIXES) and path not in WORD_LISTS
        for line in checks.find_archaic_words((ROOT / path).read_text())
    ]
    assert not findings, "\n" + "\n".join(findings)


def test_module_names_say_a_job() -> None:
    assert not [path for path in MODULES if Path(path).stem in checks.BANNED_MODULE_NAMES]


def test_the_wire_protocol_stands_alone() -> None:
    """The client imports bookie.wire, so bookie.wire must not bring the server with it."""
    allowed = ("bookie.wire", "metadata")
    findings = [
        f"{path}: {name}"
        for path, source in PRODUCT.items()
        if path.startswith("bookie/wire/")
        for name in checks.find_imports(source)
        if name.split(".")[0] in PRODUCT_PACKAGES
        and not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)
    ]
    assert not findings, "\n" + "\n".join(findings)


def test_pure_modules_are_under_contract() -> None:
    contracts = {tool["name"]: tool for tool in TOOLS["importlinter"]["contracts"]}
    listed = contracts[PURITY_CONTRACT]["source_modules"]
    existing = [_module_name(path) for path in PRODUCT]
    missing = [name for name in PURE_MODULES if name in existing and name not in listed]
    assert not missing, f"add to the contract {PURITY_CONTRACT!r} in pyproject.toml: {missing}"


def test_imports_of_each_package_are_under_contract() -> None:
    assert tuple(TOOLS["importlinter"]["root_packages"]) == PRODUCT_PACKAGES


def test_no_module_is_dead() -> None:
    """A module is alive when something imports it or starts it by name."""
    alive = _entry_points()
    for path, source in MODULES.items():
        # `python -m` starts a module by its name.
        mentioned = {*checks.find_imports(source), *checks.find_strings(source)}
        alive |= mentioned - {_module_name(path)}
    dead = [path for path in PRODUCT if not _is_package(path) and _module_name(path) not in alive]
    assert not dead, "nothing imports or starts:\n" + "\n".join(dead)


def test_unit_tests_lie_where_their_modules_do() -> None:
    """`tests/unit/a/b/test_x.py` tests `a/b`; if only one module of `a` is called `x`, this is it.

    Some support of the tests has unit tests too.
    """
    modules = [PurePosixPath(path) for path in MODULES if not path.startswith("tests/")]
    folders = {str(folder) for path in modules for folder in path.parents} | {*TESTED_SUPPORT}
    misplaced = []
    for path in MODULES:
        if not path.startswith("tests/unit/") or not Path(path).name.startswith("test_"):
            continue
        tested = PurePosixPath(path).relative_to("tests/unit")
        name = tested.name.removeprefix("test_")
        places = [
            module.parent
            for module in modules
            if module.parts[0] == tested.parts[0] and module.name == name
        ]
        is_elsewhere = len(places) == 1 and places != [tested.parent]
        if str(tested.parent) not in folders or is_elsewhere:
            misplaced.append(path)
    assert not misplaced, "\n" + "\n".join(misplaced)


def test_no_file_names_a_place_on_one_machine() -> None:
    findings = []
    for path in TRACKED:
        content = (ROOT / path).read_bytes()
        findings += [f"{path}: {place}" for place in MACHINE_PATHS if place.encode() in content]
    assert not findings, "\n" + "\n".join(findings)


def test_tests_that_run_first_exist() -> None:
    missing = [each for each in FIRST if not (ROOT / "tests" / each).exists()]
    assert missing == []


def _module_name(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def _is_package(path: str) -> bool:
    return PurePosixPath(path).name in ("__init__.py", "__main__.py")


def _entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {target.split(":")[0] for target in project["scripts"].values()}
