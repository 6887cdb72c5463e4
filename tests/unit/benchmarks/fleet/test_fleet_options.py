"""The assumptions as command-line options, and readable figures."""

import argparse
import asyncio
import io
import json
from dataclasses import fields, replace

import pytest

from benchmarks.fleet.assumptions import Assumptions, described
from benchmarks.fleet.command import parser, run
from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.results import RunFigures, spread
from benchmarks.fleet.running import run_one
from metadata.ledgers.ledger_metadata import QuorumSpec
from quire.bench.configurations import BY_NAME as COMPARED
from quire.cli.output import Output
from quire.errors import UsageError

SMALL = Assumptions(bookies=6, ledgers=2, clients=1, days=1, ledger_hours=12, retention_hours=1)


def parsed(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


def test_every_assumption_is_an_option_with_its_default() -> None:
    arguments = parsed()
    for field in fields(Assumptions):
        assert getattr(arguments, field.name) == getattr(Assumptions(), field.name)
    changed = parsed("--disk-losses", "0.5", "--bookies", "7")
    assert (changed.disk_losses, changed.bookies) == (0.5, 7)
    assert all(assumption_info.unit and assumption_info.meaning for assumption_info in described())


@pytest.mark.parametrize(
    ("option", "value"),
    [("--bookies", "0"), ("--crashes", "-1"), ("--days", "nan"), ("--pauses", "inf")],
)
def test_an_invalid_assumption_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(option, value)
    assert "use at least" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--configurations", "all-of-9"), "there is no configuration 'all-of-9'"),
        (("--bookies", "4"), "5 bookies are needed, but --bookies is 4"),
    ],
)
def test_an_impossible_simulation_is_refused(words: tuple[str, ...], says: str) -> None:
    output = Output(as_json=True, results=io.StringIO(), remarks=io.StringIO())
    with pytest.raises(UsageError, match=says):
        asyncio.run(run(parsed(*words), output))


def test_the_names_and_quorums_are_those_of_bench_compare() -> None:
    def sizes(quorum: QuorumSpec) -> tuple[int, int, int, int]:
        return (
            quorum.ensemble_size,
            quorum.write_quorum,
            quorum.ack_quorum,
            quorum.min_in_sync,
        )

    for name, configuration in BY_NAME.items():
        assert sizes(configuration.quorum) == sizes(COMPARED[name].quorum.spec)
        assert configuration.is_fixed == name.startswith("fixed")


def test_a_spread_covers_only_runs_that_have_the_figure() -> None:
    runs = [run_one("all-of-2", SMALL, seed) for seed in (1, 2, 3)]
    runs = [
        replace(figures, longest_outage_s=s) for figures, s in zip(runs, (4, 1, 3), strict=True)
    ]
    over = spread(runs, "longest_outage_s")
    assert over is not None
    assert (over.least, over.middle, over.most) == (1, 3, 4)
    assert spread(runs, "at_ack_quorum_gib_hours") is None


def test_figures_are_valid_json_numbers() -> None:
    values = run_one("majority-3", SMALL, 1).values()
    assert set(values) == {field.name for field in fields(RunFigures)} - {"configuration", "seed"}
    assert json.loads(json.dumps(values)) == values
    assert values["stored_gib_hours"] == pytest.approx(2 * stored_gib_hours())


def stored_gib_hours() -> float:
    """Return the storage of one of the ledgers of `SMALL`: it is written all the time, and each 12
    hours are kept for one more hour.
    """
    per_hour = SMALL.write_rate * 3600 * SMALL.entry_bytes / 2**30
    return 24 * per_hour * (SMALL.ledger_hours / 2 + SMALL.retention_hours)
