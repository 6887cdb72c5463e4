"""Declaration of the verbs of `quire topic` and their arguments."""

import argparse

from quire.cli.command_line import Noun, add_consent_option, not_negative, positive


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire topic`."""
    noun = Noun(
        "topic",
        "Topics: partitioned logs, served by brokers to Kafka's clients.",
        "quire.cli.topic",
    )
    _add_management(noun)
    _add_data(noun)
    return noun.parser


def _add_management(noun: Noun) -> None:
    create = _verb(noun, "create", "create a topic")
    create.add_argument("--partitions", type=positive, metavar="N", help="default: the brokers'")
    create.add_argument("--replication", type=positive, metavar="N", help="default: the brokers'")
    _add_settings(create)
    listing = _verb(noun, "list", "list topics", has_name=False)
    listing.add_argument("--internal", action="store_true", help="also the topics of coordinators")
    _verb(noun, "show", "print a topic: settings, leaders, replicas, and problems")
    grow = _verb(noun, "grow", "add partitions")
    grow.add_argument("partitions", type=positive, metavar="COUNT", help="new number of partitions")
    config = _verb(noun, "config", "print a topic's settings, or change some")
    _add_settings(config)
    config.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="SETTING",
        help="reset this setting to its default",
    )
    config.add_argument("--all", action="store_true", help="also print the defaults")
    elect = _verb(noun, "elect", "return leadership to the preferred brokers")
    elect.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="default: all"
    )
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="continue without acknowledged records that no replica can return: they are lost",
    )
    add_consent_option(elect)
    trim = _verb(noun, "trim", "delete the oldest records of a partition")
    trim.add_argument("--partition", type=not_negative, metavar="N", required=True)
    until = trim.add_mutually_exclusive_group(required=True)
    until.add_argument("--before", type=not_negative, metavar="OFFSET", help="the new first offset")
    until.add_argument(
        "--ledger", type=not_negative, metavar="ID", help="begin after this lost ledger"
    )
    add_consent_option(trim)
    add_consent_option(_verb(noun, "delete", "delete a topic with all its records"))


def _add_data(noun: Noun) -> None:
    produce = _verb(noun, "produce", "append the lines of the standard input as records")
    produce.add_argument(
        "--key-separator", metavar="TEXT", help="text between a line's key and its value"
    )
    produce.add_argument("--partition", type=not_negative, metavar="N", help="default: by key")
    produce.add_argument("--acks", choices=("0", "1", "all"), default="all")
    produce.add_argument("--create", action="store_true", help="create the topic if there is none")
    consume = _verb(
        noun, "consume", "print the values of records, one line each, or all with -o json"
    )
    consume.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="default: all"
    )
    consume.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="WHERE",
        help="earliest, latest, or an offset (default: earliest)",
    )
    consume.add_argument("--count", type=positive, metavar="N", help="stop after N records")
    consume.add_argument("--follow", action="store_true", help="wait for more records at the end")
    consume.add_argument(
        "--committed", action="store_true", help="leave out records of uncommitted transactions"
    )


def _verb(noun: Noun, name: str, summary: str, *, has_name: bool = True) -> argparse.ArgumentParser:
    verb = noun.verb(name, f"{name}_topic", summary)
    if has_name:
        verb.add_argument("topic", metavar="NAME")
    verb.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a broker to ask, instead of --metadata"
    )
    verb.add_argument(
        "--listener", metavar="NAME", help="listener to connect to (default: each broker's first)"
    )
    return verb


def _add_settings(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="docs/topics.md lists the settings",
    )


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not SETTING=VALUE")
    return name, value
