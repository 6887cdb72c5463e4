"""`quire config`: where a value comes from, and every error of a file at once, with its line."""

import io
import json
from pathlib import Path

import pytest

from quire.cli.config import located, parser
from quire.cli.output import Output
from quire.errors import UsageError
from quire.local.secure_directory import SecureDirectory


def check(path: Path, text: str, *flags: str) -> list[str]:
    """Return the errors of a file."""
    path.write_text(text)
    arguments = parser().parse_args(["check", str(path), *flags])
    output = Output(as_json=False, results=io.StringIO(), remarks=io.StringIO())
    try:
        assert arguments.handler(arguments, output) == 0
    except UsageError as error:
        return [line.strip() for line in str(error).splitlines()]
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
    assert [error.split(": ")[0] for error in errors] == [f"{path}:1", f"{path}:4", f"{path}:6"]
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
    assert [error.split(": ")[0] for error in errors] == [
        f"{path}:6",
        f"{path}:3",
        f"{path}:2",
        f"{path}:5",
    ]


def test_two_listeners_of_a_file_cannot_have_one_port(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    lines = [
        "[bookie]",
        'data_dir = "/b"',
        "port = 3181",
        "[gateway]",
        "port = 3181",
        "admin_port = 3181",
        "[zookeeper]",
        'data_dir = "/z"',
    ]
    assert check(path, "\n".join(lines)) == [
        f"{path}:6: admin_port is that of port: 3181",
        f"{path}:5: [gateway] port is that of [bookie] port: 3181",
        f"{path}:6: [gateway] admin_port is that of [bookie] port: 3181",
    ]
    lines[5] = "admin_port = 2181"
    assert check(path, "\n".join(lines)) == [
        f"{path}:5: [gateway] port is that of [bookie] port: 3181",
        f"{path}:7: [zookeeper] port is that of [gateway] admin_port: 2181",
    ]


def test_an_error_hides_no_other(tmp_path: Path) -> None:
    """Files are read, and ports compared, of servers that have other errors too."""
    path = tmp_path / "c.toml"
    lines = [
        "[bookie]",
        "weight = 5000",
        "port = 3181",
        f'admin_token_file = "{tmp_path}/missing"',
        "[gateway]",
        "port = 3181",
        'admin_port = "3181"',
        'tls = "required"',
    ]
    errors = [each.split(": ")[0] for each in check(path, "\n".join(lines))]
    missing = [str(path)] * 3  # files of certificates, which have no lines
    assert errors == [f"{path}:2", f"{path}:4", f"{path}:7", *missing, f"{path}:6"]


def test_a_file_for_several_machines_may_have_one_port_twice(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    bookie = 'host = "0.0.0.0"\nadvertised_host = "b"\nallow_plaintext = true\nport = 3181\n'
    path.write_text(f'[bookie]\ndata_dir = "/b"\n{bookie}[gateway]\nport = 3181\n')
    remarks = io.StringIO()
    output = Output(as_json=True, results=io.StringIO(), remarks=remarks)
    arguments = parser().parse_args(["check", str(path)])
    assert arguments.handler(arguments, output) == 0
    assert "[gateway] port is that of [bookie] port: 3181; this is right only if" in (
        remarks.getvalue()
    )


def test_the_files_that_a_file_names_are_read(tmp_path: Path) -> None:
    path, token, client = (tmp_path / each for each in ("c.toml", "token", "client.toml"))
    token.write_text("short")
    client.write_text('[tls]\nauthorities = "missing.pem"\n')
    lines = [
        "[gateway]",
        f'admin_token_file = "{token}"',
        f'metadata = "zk://127.0.0.1:2181/q?client={client}"',
        f'tls_refused_file = "{tmp_path}/refused"',
        'tls = "required"',
        f'tls_cert_file = "{tmp_path}/c.pem"',
        f'tls_key_file = "{tmp_path}/k.pem"',
        f'tls_ca_file = "{tmp_path}/a.pem"',
    ]
    token.chmod(0o644)
    errors = check(path, "\n".join(lines))
    assert {error.split(": ")[0] for error in errors} == {f"{path}:{line}" for line in (2, 3, 4, 7)}
    assert "missing.pem" in errors[0]
    assert "chmod 600" in errors[-1]
    assert "short" not in "".join(errors)
    token.chmod(0o600)
    assert "fewer than 16 characters" in check(path, "\n".join(lines))[-1]
    assert check(path, "\n".join(lines), "--without-files") == []


def test_certificates_that_can_be_used_are_valid(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill(clients=("ann",))
    files = directory.certificate_options("bookie")
    lines = ["[gateway]", 'tls = "required"', *(f'{k} = "{v}"' for k, v in files.items())]
    path = tmp_path / "c.toml"
    metadata = f'metadata = "zk://127.0.0.1:2181/q?client={directory.client_file("ann")}"'
    assert check(path, "\n".join((*lines, metadata))) == []
    Path(files["tls_cert_file"]).write_text("no certificate")
    (error,) = check(path, "\n".join(lines))
    assert "tls_cert_file: " in error
    assert "cannot be used for TLS" in error


def test_the_file_overrides_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_METADATA", "zk://clients:1/q")
    path = tmp_path / "c.toml"
    path.write_text('[bookie]\nmetadata = "zk://servers:1/q"\n')
    results = io.StringIO()
    arguments = parser().parse_args(["show", "--config", str(path)])
    output = Output(as_json=True, results=results, remarks=io.StringIO())
    assert arguments.handler(arguments, output) == 0
    rows = json.loads(results.getvalue())
    found = {
        (row["server"], row["option"]): (row["value"], row["origin"], row["unit"]) for row in rows
    }
    assert found["bookie", "metadata"] == ("zk://servers:1/q", str(path), "")
    assert found["broker", "metadata"] == ("zk://clients:1/q", "QUIRE_METADATA", "")
    assert found["bookie", "data_dir"] == ("(given when it is started)", "default", "")
    assert found["bookie", "clean_bytes_per_s_min"] == (16_777_216, "default", "B/s")
