"""`quire up`: a local cluster in one command, until it receives a stop signal.

Format of the one line with -o json: `{"metadata": "zk://...", "bookies": [{"id", "address", "pid",
"admin_url", "data_dir"}], "brokers": [{"id", "address", "pid", "admin_url"}], "zookeeper": {"pid"},
"data"}`. A broker of a secure cluster has a `login_address` too. With --console there is
`"console": {"address", "pid"}`, with a `login_token` if it made one.
"""

import argparse
import asyncio
import json
import os
import shlex
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from metadata.cancelling import cancel_and_wait
from quire.cli.command_line import lone_command, not_negative, positive
from quire.cli.output import Output
from quire.cli.servers import server_table
from quire.errors import ExitCode, UsageError
from quire.operate.fields import Json
from quire.options import METADATA_VARIABLE, OptionError, known_name

if TYPE_CHECKING:
    from quire.local.local_server import LocalBookie, LocalBroker, LocalConsole
    from quire.local_cluster import LocalCluster

LOOK_PERIOD_S: Final = 1.0
OWN_OPTIONS: Final = {
    "bookie": ("bookie run", ("data_dir", "metadata", "die_with_parent")),
    "broker": ("broker run", ("broker_id", "metadata", "listeners", "die_with_parent")),
    "console": ("console", ("metadata", "port", "die_with_parent")),
}
"""Servers that take further options, the command that explains these, and the options that `quire
up` chooses itself.
"""
TRY_NEXT: Final = "quire up --help"
LOGIN_LISTENER: Final = "SASL_SSL"
TOOLS: Final = (
    ("kafka-topics", "command-config", "--create --topic orders"),
    ("kafka-console-producer", "producer.config", "--topic orders"),
    ("kafka-console-consumer", "consumer.config", "--topic orders --from-beginning"),
)
"""Tools of Kafka, the option that takes settings, and further arguments."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire up`."""
    summary = (
        "Starts ZooKeeper, bookies and brokers on this machine, prints their addresses once all "
        "are ready, and runs until SIGINT or SIGTERM. With the same --data it keeps its data "
        "over restarts."
    )
    command = lone_command("up", _run, summary)
    command.add_argument("--bookies", type=positive, metavar="N", help="default 4, or as before")
    command.add_argument("--data", metavar="DIR", help="default: temporary, removed at the end")
    command.add_argument(
        "--brokers",
        type=not_negative,
        default=0,
        metavar="N",
        help="brokers of Kafka's protocol; default 0",
    )
    command.add_argument(
        "--capacity",
        type=positive,
        metavar="BYTES",
        help="maximum use of the disk by each bookie; default: all of it",
    )
    command.add_argument(
        "--secure",
        action="store_true",
        help="make certificates in the data directory, and take only clients that have one",
    )
    command.add_argument("--console", action="store_true", help="start a console for browsers too")
    for server, (verb, _) in OWN_OPTIONS.items():
        command.add_argument(
            f"--{server}-option",
            metavar="NAME=VALUE",
            action="append",
            help=f"an option of each {server}, as of `quire {verb}`; several times for more; "
            f"also as QUIRE_{server.upper()}_<OPTION>",
        )
    return command


async def _run(arguments: argparse.Namespace, output: Output) -> int:
    from quire.local_cluster import LocalCluster

    of_bookies = passed_options("bookie", arguments.bookie_option or (), os.environ)
    if arguments.capacity:
        of_bookies["capacity_bytes"] = str(arguments.capacity)
    of_brokers = passed_options("broker", arguments.broker_option or (), os.environ)
    of_console = None
    if arguments.console:
        of_console = passed_options("console", arguments.console_option or (), os.environ)
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, woken.set)
    cluster = LocalCluster(
        bookies=arguments.bookies,
        data_dir=arguments.data,
        broker=arguments.brokers,
        bookie_options=of_bookies,
        broker_options=of_brokers,
        secure=arguments.secure,
        report=output.remark,
    )
    ended: dict[str, None] = {}
    starting = asyncio.create_task(_start(cluster, of_console))
    starting.add_done_callback(lambda _: woken.set())
    try:
        await woken.wait()
        if starting.done():
            await starting
            woken.clear()
            _announce(cluster, output)
            while not woken.is_set():
                _report_ends(cluster, output, ended)
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), LOOK_PERIOD_S)
    finally:
        await cancel_and_wait(starting)
        await cluster.aclose()
    return ExitCode.DONE


def passed_options(
    server: str, words: Iterable[str], variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the options for each server of a kind, from variables and words (NAME=VALUE), which
    override. An option that is unknown, invalid or chosen by `quire up` is refused. Raises
    UsageError.
    """
    table = server_table(server)
    prefix = table.variable_prefix
    given = {
        name.removeprefix(prefix).lower(): value
        for name, value in variables.items()
        if name.startswith(prefix)
    }
    try:
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                raise UsageError(f"{word} is not NAME=VALUE", try_next=TRY_NEXT)
            given[known_name(name.replace("-", "_"), list(table.options), "option")] = value
        for name in OWN_OPTIONS[server][1]:
            if name in given:
                text = f"{name} cannot be given: quire up chooses it for each server"
                raise UsageError(text, try_next=TRY_NEXT)
        flags = dict.fromkeys(table.read({}, {}, {}).missing, "chosen by quire up")
        table.load(None, {prefix + name.upper(): value for name, value in given.items()}, flags)
    except OptionError as error:
        raise UsageError(str(error), try_next=TRY_NEXT) from error
    return given


async def _start(cluster: "LocalCluster", of_console: Mapping[str, str] | None) -> None:
    await cluster.start()
    if of_console is not None:
        await cluster.add_console(of_console)


def _report_ends(cluster: "LocalCluster", output: Output, ended: dict[str, None]) -> None:
    """Report each server that has ended by itself, once; the others continue."""
    consoles = [] if cluster.console is None else [cluster.console]
    for server in (*cluster.bookies, *cluster.brokers, *consoles):
        if not server.is_running and server.name not in ended:
            ended[server.name] = None
            output.remark(f"{server.name} has ended; the end of its log:\n{server.log_tail()}")


def _announce(cluster: "LocalCluster", output: Output) -> None:
    if output.as_json:
        output.line(json.dumps(_as_json(cluster)))
    else:
        with output.listing("id", "address", "pid", "admin_url") as listing:
            for bookie in cluster.bookies:
                listing.add(_bookie_as_json(bookie))
            for broker in cluster.brokers:
                listing.add({**_server_as_json(broker), "id": broker.name})
        output.line(f"\nexport {METADATA_VARIABLE}={cluster.metadata_uri}")
        if cluster.brokers:
            for line in kafka_lines(cluster):
                output.line(line)
        if cluster.console is not None:
            output.line(f"Console: {cluster.console.address}{_login_hint(cluster)}")
        kept = "is kept" if cluster.keeps_data else "is removed at the end"
        output.remark(f"Data in {cluster.data_dir} {kept}. Ctrl-C stops everything.")
    output.results.flush()


def _login_hint(cluster: "LocalCluster") -> str:
    if cluster.is_secure:
        return f" (the token is in {cluster.certificates.console_token_file()})"
    token = cluster.console.login_token if cluster.console else ""
    return f" (the token is {token})" if token else ""


def kafka_lines(cluster: "LocalCluster") -> list[str]:
    """Return how clients of Kafka reach the brokers; if a login is needed, commands to try it."""
    addresses = ",".join(broker.address for broker in cluster.brokers)
    logins = ",".join(filter(None, (_login_address(broker) for broker in cluster.brokers)))
    if not logins:
        return [f"bootstrap.servers={addresses}"]
    login = shlex.quote(cluster.properties_file)
    certificate = shlex.quote(cluster.certificate_properties_file)
    return [
        f"bootstrap.servers={logins}",
        *(
            f"  {tool}.sh --bootstrap-server {logins} --{option} {login} {rest}"
            for tool, option, rest in TOOLS
        ),
        f"With a certificate instead of the password: {addresses} and {certificate}",
    ]


def _as_json(cluster: "LocalCluster") -> dict[str, Json]:
    return {
        "metadata": cluster.metadata_uri,
        "bookies": [_bookie_as_json(bookie) for bookie in cluster.bookies],
        "brokers": [_broker_as_json(broker) for broker in cluster.brokers],
        "zookeeper": {"pid": cluster.zookeeper.pid},
        "data": str(cluster.data_dir),
        **({} if cluster.console is None else {"console": _console_as_json(cluster.console)}),
    }


def _console_as_json(console: "LocalConsole") -> dict[str, Json]:
    row: dict[str, Json] = {"address": console.address, "pid": console.pid}
    return {**row, **({"login_token": console.login_token} if console.login_token else {})}


def _server_as_json(server: "LocalBookie | LocalBroker") -> dict[str, Json]:
    return {
        "id": server.id,
        "address": server.address,
        "pid": server.pid,
        "admin_url": server.admin_url,
    }


def _login_address(broker: "LocalBroker") -> str | None:
    return broker.listeners.get(LOGIN_LISTENER)


def _broker_as_json(broker: "LocalBroker") -> dict[str, Json]:
    login = _login_address(broker)
    return {**_server_as_json(broker), **({"login_address": login} if login else {})}


def _bookie_as_json(bookie: "LocalBookie") -> dict[str, Json]:
    return {**_server_as_json(bookie), "data_dir": str(bookie.data_dir)}
