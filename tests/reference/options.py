"""Page of every option of servers, clients and topics, from the option classes."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import bookie.options
import broker_layer.options
import quire.console.options
import quire.gateway.options
import quire.zookeeper.options
from broker_layer.log.settings.topic_config_table import DEFINITIONS
from ledger_client import ClientConfig
from ledger_client.config import bounds_of
from quire.server.option_reading import OptionInfo
from tests.reference.markdown import code, page, prose, table

INTRODUCTION: Final = """\
Options of servers are read from a TOML file, environment variables and flags, in ascending
order ([operating.md](../operating.md#configuration)). Names end in their unit: `_s` is seconds,
`_ms` milliseconds, `_bytes` bytes."""
INT64_MAX: Final = 2**63 - 1


def options_page() -> str:
    """Return the page."""
    return page(
        "Options",
        INTRODUCTION,
        [
            _server("Bookie", "bookie", bookie.options.OPTIONS),
            _server("Broker", "broker", broker_layer.options.OPTIONS),
            _server("Gateway", "gateway", quire.gateway.options.OPTIONS),
            _server("Console", "console", quire.console.options.OPTIONS),
            _server("ZooKeeper", "zookeeper", quire.zookeeper.options.OPTIONS),
            _client(),
            _topics(),
        ],
    )


def _server(title: str, name: str, options: Mapping[str, OptionInfo]) -> str:
    head = (
        f"## {title}\n\nTable `[{name}]` of the file, variables "
        f"`QUIRE_{name.upper()}_<OPTION>`, flags `--option-name`."
    )
    rows = (_option(each) for each in options.values())
    return f"{head}\n\n" + table(["option", "type", "default", "bounds", "meaning"], rows)


def _option(option: OptionInfo) -> list[str]:
    bounds = "" if option.low is None else f"{option.low:,} to {option.high or 0:,}"
    default = str(option.default).lower() if option.kind is bool else str(option.default)
    return [code(option.name), option.kind.__name__, code(default), bounds, prose(option.help)]


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
