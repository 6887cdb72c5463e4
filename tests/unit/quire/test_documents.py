"""Files, commands and metrics that the documents name exist."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bookie.server.metrics import BookieMetrics
from bookie.server.server_limits import ServerCounters
from broker_layer.kafka.versions import ADVERTISED
from metadata.repair.scrub import NEVER_SCRUBBED
from quire.cli.bookie_verbs import parser
from quire.cli.main import parser_of
from quire.server.metrics import ProcessMetrics
from tests.support.bookie.manual_storage import ManualStorage

ROOT = Path(__file__).parents[3]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/operating.md",
    "docs/runbooks.md",
)
NAMED = re.compile(
    r"`((?:metadata|serving|bookie|ledger_client|broker_layer|spark_io|quire|tests|docs)/[\w./-]*)`"
)
LINKED = re.compile(r"\]\((?!http)([^)#]+)\)")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_named_file_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = [*NAMED.findall(text), *[_beside(document, link) for link in LINKED.findall(text)]]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_documents_name_most_of_the_code() -> None:
    named = NAMED.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(set(named)) > 50


def test_every_documented_metric_of_a_bookie_exists() -> None:
    text = (ROOT / "docs/operating.md").read_text()
    named = set(re.findall(r"`(quire_bookie_\w+)", text))
    position: Any = SimpleNamespace(age_s=0.0, unrecorded_bytes=0)
    metrics = BookieMetrics(
        "b", ServerCounters(), ManualStorage(), position, lambda: NEVER_SCRUBBED
    )
    found = {metric.name for metric in metrics.collect()}
    found |= {metric.name for metric in ProcessMetrics("bookie").collect()}
    found |= {f"quire_bookie_storage_{name}_latency_seconds" for name in ("sync", "checkpoint")}
    assert len(named) > 8
    assert named <= found


def test_every_documented_command_about_bookies_can_be_read() -> None:
    text = (ROOT / "docs/operating.md").read_text()
    commands = [line.split("#")[0] for line in re.findall(r"^\$ quire bookie (.*)$", text, re.M)]
    for words in commands:
        parser().parse_args(shlex.split(words))
    assert {"entry", "compare", "segments", "dump", "rebuild-index", "readonly"} <= {
        words.split()[0] for words in commands
    }


def test_every_command_of_the_runbooks_can_be_read() -> None:
    text = (ROOT / "docs/runbooks.md").read_text()
    commands = re.findall(r"^ *\$ quire (\w+) ([^>\n]*)", text, re.M)
    for noun, words in commands:
        parser_of(noun).parse_args(shlex.split(words, comments=True))
    verbs = {words.split()[0] for noun, words in commands if noun == "metadata"}
    assert verbs == {"dump", "restore", "check", "compare", "accept-restore"}


def test_every_served_api_is_documented_with_its_versions() -> None:
    text = (ROOT / "docs/topics.md").read_text()
    section = text[text.index("## What is served") : text.index("## Clients that were run")]
    documented: dict[str, str] = {}
    for names, versions in re.findall(r"^\| ([A-Z][^|]*) \| (\d[^|]*) \|", section, re.M):
        documented |= dict(zip(names.split(", "), versions.split(", "), strict=True))
    served = {
        key.shown: (
            f"{version_range.min}-{version_range.max}"
            if version_range.max > version_range.min
            else str(version_range.min)
        )
        for key, version_range in ADVERTISED.items()
    }
    assert documented == served


def _beside(document: str, link: str) -> str:
    return str((Path(document).parent / link).as_posix())
