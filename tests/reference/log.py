"""Page of every event in the logs of servers, from the calls that write them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.reference.markdown import code, page, prose, table

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "quire/server",
    "bookie",
    "quire/repair",
    "broker_layer",
    "quire/gateway",
    "quire/console",
    "quire/zookeeper",
)
TITLES: Final = {
    "quire/server": "Every server",
    "bookie": "Bookie",
    "quire/repair": "Repair",
    "broker_layer": "Broker",
    "quire/gateway": "Gateway",
    "quire/console": "Console",
    "quire/zookeeper": "ZooKeeper",
}
LEVELS: Final = {"info": "info", "warning": "warning", "failure": "error"}
LOGS: Final = ("_log", "log", "_events")
"""Names of logs that take an event and its fields."""
EVENT_OF_PROCESS: Final = "log_event"
INTRODUCTION: Final = """\
Servers write one line of JSON for each event to the standard error: `time`, `level`, `event`, and
the fields of the event. The words of an event do not change with its values. At most five lines of
one event are written in 10 s; `left_out` of the next one counts the others. `--log-level warning`
leaves out what is normal. [Audit lines](../security.md#audit-log) say who changed what. Other lines
of level info or warning are texts for people."""


class Event(NamedTuple):
    """One event of a package."""

    event: str
    level: str
    fields: tuple[str, ...]


def log_page() -> str:
    """Return the page."""
    sections = []
    for package in PACKAGES:
        events = sorted(set(events_of(package)))
        if events:
            rows = [
                (prose(event.event), event.level, ", ".join(map(code, event.fields)))
                for event in events
            ]
            sections.append(f"## {TITLES[package]}\n\n" + table(("event", "level", "fields"), rows))
    return page("Log events", INTRODUCTION, sections)


def events_of(package: str) -> Iterator[Event]:
    """Yield the events that the modules of a package write."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and (level := _level_of(node)):
                fields = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
                for event in _texts_of(node.args[0]):
                    yield Event(event, level, fields)


def _texts_of(argument: ast.expr) -> Iterator[str]:
    """Yield the constants that an argument may be, but no texts with places for values."""
    if isinstance(argument, ast.IfExp):
        yield from _texts_of(argument.body)
        yield from _texts_of(argument.orelse)
    elif isinstance(argument, ast.Constant) and "%" not in str(argument.value):
        yield str(argument.value)


def _level_of(call: ast.Call) -> str:
    """Return the level of a call that writes a line; empty for another call."""
    function = call.func
    if isinstance(function, ast.Name) and function.id == EVENT_OF_PROCESS:
        return "info" if len(call.args) == 1 else "warning"
    if not isinstance(function, ast.Attribute) or function.attr not in LEVELS:
        return ""
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return LEVELS[function.attr] if name in LOGS else ""
