"""Page of every option of servers, clients and topics, from the option classes."""

import ast
import inspect
from dataclasses import fields
from typing import Any, Final

from broker_layer.log.settings.topic_config_table import DEFINITIONS
from ledger_client import ClientConfig
from ledger_client.config import bounds_of
from quire.cli.servers import ROOMS, server_table
from quire.options import Option, OptionTable
from tests.reference.markdown import code, page, prose, table

INTRODUCTION: Final = """\
Options of servers are read from flags, a TOML file and environment variables, in descending
order ([operating.md](../operating.md#configuration)). The type of a number has its unit; B is
bytes. A running server follows a change of what is *live*; to change another, start it again."""
TITLES: Final = {"zookeeper": "ZooKeeper"}
INT64_MAX: Final = 2**63 - 1


def options_page() -> str:
    """Return the page."""
    servers = [_server(server_table(name)) for name in ROOMS]
    return page("Options", INTRODUCTION, [*servers, _client(), _topics()])


def _server(options: OptionTable[Any]) -> str:
    name = options.name
    head = (
        f"## {TITLES.get(name, name.title())}\n\nTable `[{name}]` of the file, flags"
        f" `--option-name`, variables `{options.variable_prefix}<OPTION>`."
    )
    rows = (_option(each) for each in options.options.values())
    return f"{head}\n\n" + table(["option", "type", "default", "bounds", "meaning"], rows)


def _option(option: Option) -> list[str]:
    facts = option.facts
    file = "secret file" if facts.is_secret else "file" if facts.is_file else ""
    kind = "choice" if option.choices else option.kind.__name__
    kind = ", ".join(filter(None, (kind, option.unit, file, "live" if facts.is_live else "")))
    bounds = ", ".join(map(code, option.choices)) if option.choices else option.bounds
    if facts.is_required:
        bounds = "required"
    return [code(option.name), kind, code(option.shown_default), bounds, prose(facts.help)]


def _client() -> str:
    texts = _field_texts(ClientConfig)
    rows = (
        [
            code(each.name),
            code(str(each.default)),
            "" if (bounds := bounds_of(each)) is None else bounds.text,
            prose(texts.get(each.name, "")),
        ]
        for each in fields(ClientConfig)
    )
    head = (
        "## Client\n\nFields of `ledger_client.ClientConfig`; in Spark, options `client.<field>`."
    )
    return f"{head}\n\n" + table(["field", "default", "bounds", "meaning"], rows)


def _field_texts(kind: type) -> dict[str, str]:
    """Return the text behind each field of a class."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    texts, name = {}, ""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                continue
            case ast.Expr(value=ast.Constant(value=str() as text)) if name:
                texts[name] = text
        name = ""
    return texts


def _topics() -> str:
    rows = []
    for each in DEFINITIONS.values():
        allowed = ", ".join(map(code, each.values))
        if each.is_fixed:
            allowed = "only the default"
        elif each.kind.name in ("INT", "LONG", "SHORT"):
            maximum = "no bound" if each.maximum == INT64_MAX else f"{each.maximum:,}"
            allowed = f"{each.minimum:,} to {maximum}"
        elif each.kind.name == "DOUBLE":
            allowed = f"{each.minimum} to {each.maximum}"
        default = "follows from others" if each.default is None else code(each.default)
        rows.append([code(each.name), default, allowed, prose(each.meaning)])
    head = (
        "## Topics\n\nSettings of a topic, by Kafka's names ([topics.md](../topics.md#settings))."
    )
    return f"{head}\n\n" + table(["setting", "default", "allowed", "meaning"], rows)
