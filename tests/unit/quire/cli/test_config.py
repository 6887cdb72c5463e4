"""`quire config check`: every error of a file at once, with its line."""

import io
from pathlib import Path

import pytest

from quire.cli.config import located, parser
from quire.cli.output import Output
from quire.errors import UsageError


def check(path: Path, text: str) -> list[str]:
    """Return the errors of a file."""
    path.write_text(text)
    arguments = parser().parse_args(["check", str(path)])
    output = Output(as_json=False, results=io.StringIO(), remarks=io.StringIO())
    try:
        assert arguments.handler(arguments, output) == 0
    except UsageError as error:
        return [each.strip() for each in str(error).splitlines()]
    return []


def test_a_valid_file(tmp_path: Path) -> None:
    text = '[bookie]\ndata_dir = "/srv/b"\n\n[broker]\nbroker_id = 3\n'
    assert check(tmp_path / "c.toml", text) == []


def test_every_error_of_every_table_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    errors = check(
        path,
        '[bookie]\nprot = 7\nport = "x"\n[broker]\n# a comment\n  default_partitions = 0\n',
    )
    assert errors == [
        f"{path}:2: unknown option in [bookie]: prot; did you mean port?",
        f"{path}:3: [bookie] port must be a whole number, not 'x'",
        f"{path}:6: [broker] default_partitions must be from 1 to 10000, not 0",
    ]


def test_each_of_several_bookies_has_its_own_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    tables = '[[bookie]]\ndata_dir = "/1"\n[[bookie]]\ndata_dir = "/2"\nadmin_port = "k"\n'
    assert check(path, tables) == [
        f"{path}:5: [[bookie]] 2 admin_port must be a whole number, not 'k'"
    ]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[broker]\nmetadata = "zkk://h/q"\n', 2, "metadata: "),
        ('[bookie]\ndata_dir = "/b"\nmetadata = "zk://"\n', 3, "metadata: "),
        (
            '[broker]\ndefault_replication_factor = 2\ntopic_defaults = "min.insync.replicas=3"\n',
            3,
            "more than default_replication_factor, 2",
        ),
        ('[bookie]\ndata_dir = "/b"\ndisk_low_mark = 0.97\ndisk_high_mark = 0.9\n', 3, "above"),
        ("[bookie]\n[bookie\n", 2, "not TOML"),
    ],
)
def test_options_that_contradict_each_other(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    (error,) = check(tmp_path / "c.toml", text)
    assert error.startswith(f"{tmp_path / 'c.toml'}:{line}: ")
    assert says in error


def test_an_error_without_a_line() -> None:
    assert located("data_dir is not set", "f", "[bookie]\n", "[bookie]") == (
        "f: data_dir is not set"
    )


def test_an_unknown_table_hides_no_other_error(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    errors = check(path, '[bookei]\nport = "x"\n[broker]\nport = "y"\n[console]\nport = "z"\n')
    assert [each.split(": ")[0] for each in errors] == [f"{path}:1", f"{path}:4", f"{path}:6"]
    assert "unknown table in the configuration file: bookei" in errors[0]


def test_contradictions_of_one_table_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    lines = [
        "[broker]",
        'listeners = "PLAINTEXT://0.0.0.0:1"',
        'advertised_listeners = "PLAINTEXT://0.0.0.0:1"',
        "default_replication_factor = 2",
        'topic_defaults = "min.insync.replicas=3"',
        'metadata = "zkk://h/q"',
    ]
    errors = check(path, "\n".join(lines))
    assert [each.split(": ")[0] for each in errors] == [f"{path}:3", f"{path}:6", f"{path}:5"]
