"""Page of every option of servers, clients and topics, from the option classes."""

from typing import Any, Final

from broker_layer.log.topic_config_table import DEFINITIONS
from ledger_client import ClientConfig
from quire.cli.servers import MODULES, server_table
from quire.options import Option, OptionTable, described
from tests.reference.markdown import code, page, prose, table

INTRODUCTION: Final = """\
Options of servers are read from flags, a TOML file and environment variables, in descending
order ([operating.md](../operating.md#configuration)). The type of a number has its unit; B is
bytes. A running server follows a change of what is *live*; to change another, start it again."""
COLUMNS: Final = ["option", "type", "default", "bounds", "meaning"]
TITLES: Final = {"zookeeper": "ZooKeeper"}
INT64_MAX: Final = 2**63 - 1


def options_page() -> str:
    """Return the page."""
    servers = [_server(server_table(name)) for name in MODULES]
    return page("Options", INTRODUCTION, [*servers, _client(), _topics()])


def _server(options: OptionTable[Any]) -> str:
    name = options.name
    head = (
        f"## {TITLES.get(name, name.title())}\n\nTable `[{name}]` of the file, flags"
        f" `--option-name`, variables `{options.variable_prefix}<OPTION>`."
    )
    rows = (_option(option, option.shown_default) for option in options.options.values())
    return f"{head}\n\n" + table(COLUMNS, rows)


def _option(option: Option, default: str) -> list[str]:
    facts = option.facts
    file = "secret file" if facts.is_secret else "file" if facts.is_file else ""
    kind = "choice" if option.choices else option.kind.__name__
    kind = ", ".join(filter(None, (kind, option.unit, file, "live" if facts.is_live else "")))
    bounds = ", ".join(map(code, option.choices)) if option.choices else option.bounds
    if facts.is_required:
        bounds = "required"
    return [code(option.name), kind, code(default), bounds, prose(facts.help)]


def _client() -> str:
    rows = (_option(option, str(option.default)) for option in described(ClientConfig).values())
    head = (
        "## Client\n\nFields of `ledger_client.ClientConfig`; in Spark, options `client.<field>`."
    )
    return f"{head}\n\n" + table(COLUMNS, rows)


def _topics() -> str:
    rows = []
    for definition in DEFINITIONS.values():
        allowed = ", ".join(map(code, definition.values))
        if definition.is_fixed:
            allowed = "only the default"
        elif definition.kind.name in ("INT", "LONG", "SHORT"):
            maximum = "no bound" if definition.maximum == INT64_MAX else f"{definition.maximum:,}"
            allowed = f"{definition.minimum:,} to {maximum}"
        elif definition.kind.name == "DOUBLE":
            allowed = f"{definition.minimum} to {definition.maximum}"
        default = "follows from others" if definition.default is None else code(definition.default)
        rows.append([code(definition.name), default, allowed, prose(definition.meaning)])
    head = (
        "## Topics\n\nSettings of a topic, by Kafka's names ([topics.md](../topics.md#settings))."
    )
    return f"{head}\n\n" + table(["setting", "default", "allowed", "meaning"], rows)
