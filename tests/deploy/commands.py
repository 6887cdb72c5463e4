"""Commands and configuration of Quire in deployment files, checked by Quire's own parsers."""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from quire.cli.main import main, parser_of
from quire.errors import ExitCode

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"


def parse_command(words: Sequence[str]) -> Namespace:
    """Return the arguments of a command, whose first word is a noun of `quire`."""
    noun, *rest = words
    parsed: Namespace = parser_of(noun).parse_args(rest)
    return parsed


def assert_valid_configuration(path: Path, variables: Mapping[str, str]) -> None:
    """Assert that `quire config check` accepts a file, under these variables alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        assert main(["config", "check", "--without-files", str(path)]) == ExitCode.DONE
