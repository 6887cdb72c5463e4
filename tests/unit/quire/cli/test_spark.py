"""Options of `quire spark` become options of the data source."""

import pytest

from quire.cli.spark import parser, source_options

TAIL = ["tail-to-table", "table", "--chain", "events", "--checkpoint", "checkpoint"]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {}),
        (["--allow-data-loss"], {"failOnDataLoss": "false"}),
        (["--password-file", "key"], {"passwordFile": "key"}),
        (["--key-file", "keys.toml"], {"keyFile": "keys.toml"}),
    ],
)
def test_options_of_tail_to_table(words: list[str], options: dict[str, str]) -> None:
    assert source_options(parser().parse_args([*TAIL, *words])) == options
