"""The process of repair beside a bookie: what it is told."""

from pathlib import Path

from bookie.options import BookieOptions
from quire.cli.repair_verbs import parser
from quire.local.bookie_group import repair_command


def test_it_waits_for_writers_as_long_as_the_bookies_session_says(tmp_path: Path) -> None:
    """A repair with shorter sessions than the cluster recovers ledgers of live writers (9.2)."""
    options = BookieOptions(metadata="zk://a:1/q", data_dir=str(tmp_path), session_timeout_s=29.5)
    command = repair_command(options)
    arguments = parser().parse_args(command[command.index("run-worker") :])
    assert (arguments.metadata, arguments.session_timeout_s) == ("zk://a:1/q", 29.5)
    assert (arguments.audit, arguments.die_with_parent) == (True, True)
