"""The three lists of public names in `ledger_client` agree: of types, of names, and of modules."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import ledger_client

SOURCE = Path(str(ledger_client.__file__)).read_text()


def imported_for_types() -> dict[str, str]:
    """Return the module of each name that type checkers see."""
    block = next(each for each in ast.parse(SOURCE).body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    return {
        name.name: str(import_from.module) for import_from in imports for name in import_from.names
    }


def test_type_checkers_see_the_names_that_programs_get() -> None:
    assert imported_for_types() == ledger_client._HOME
    assert sorted(ledger_client._HOME) == sorted(ledger_client.__all__)


@pytest.mark.parametrize("name", ledger_client.__all__)
def test_a_public_name_is_that_of_its_module(name: str) -> None:
    assert getattr(ledger_client, name) is getattr(import_module(ledger_client._HOME[name]), name)


def test_other_names_are_no_attributes() -> None:
    assert {*ledger_client.__all__} <= {*dir(ledger_client)}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ledger_client.Nothing  # type: ignore[attr-defined]
