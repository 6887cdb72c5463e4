"""`quire spark ...`: jobs over ledgers in a Spark session that this command starts."""

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from quire.cli.command_line import Noun, ledger_id, metadata_address
from quire.cli.ledger import password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import CommandError, ExitCode
from quire.operate.fields import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2
FINDINGS_SHOWN_MAX: Final = 1_000

OUR_MODULES: Final = ("spark_io.", "ledger_client.", "metadata.")

ResultT = TypeVar("ResultT")


class SparkJobError(CommandError):
    """A job failed; the text has the innermost reason."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire spark`."""
    noun = Noun("spark", "Jobs over ledgers, run by Spark on this machine or a cluster.")
    scrub = noun.verb(
        "scrub", _scrub, "read every replica of closed ledgers; status 1 if any is not sound"
    )
    _add_shared(scrub)
    _add_ledgers(scrub, "by default all closed ones")
    archive = noun.verb("archive", _archive, "copy closed ledgers into Parquet files")
    _add_shared(archive)
    archive.add_argument("path", help="a directory of any file system that Spark supports")
    _add_ledgers(archive, "by default all closed ones")
    restore = noun.verb("restore", _restore, "write archived ledgers into new ones, in a chain")
    _add_shared(restore)
    restore.add_argument("path", help="the directory that `archive` wrote")
    restore.add_argument("--chain", required=True, metavar="NAME", help="chain to publish them in")
    _add_ledgers(restore, "by default all ledgers of the archive")
    _add_key_file(restore)
    ingest = noun.verb("ingest", _ingest, "write the lines of files into a chain, one entry each")
    _add_shared(ingest)
    ingest.add_argument("files", nargs="+", metavar="FILE", help="a text file, also .gz")
    ingest.add_argument("--chain", required=True, metavar="NAME")
    _add_key_file(ingest)
    tail = noun.verb(
        "tail-to-table", _tail, "keep a table up to date with a chain, by a streaming query"
    )
    _add_shared(tail)
    tail.add_argument("path", help="the table's directory")
    tail.add_argument("--chain", required=True, metavar="NAME")
    _add_key_file(tail)
    tail.add_argument("--checkpoint", required=True, metavar="DIR", help="the query's checkpoint")
    tail.add_argument("--format", default="parquet", help="format of the table (default parquet)")
    tail.add_argument(
        "--interval",
        metavar="TIME",
        help="run for ever, with a micro-batch at this interval ('10 seconds'); default: once",
    )
    tail.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="leave out lost entries; continue at the start of a chain that was created again",
    )
    return noun.parser


async def _scrub(arguments: argparse.Namespace, output: Output) -> int:
    def job(spark: "SparkSession") -> list[Row]:
        from spark_io.pipelines.scrub import findings_of, scrub

        frame = scrub(spark, address, arguments.ledgers or None, password=password)
        return [
            {
                "ledger_id": finding.ledger_id,
                "first_entry_id": finding.first_entry_id,
                "last_entry_id": finding.last_entry_id,
                "bookie": finding.bookie,
                "finding": finding.finding,
                "detail": finding.detail,
            }
            for finding in findings_of(frame)
        ]

    address, password = metadata_address(arguments), password_of(arguments)
    findings = await _run(arguments, output, "scrubbed", job)
    columns = ("ledger_id", "first_entry_id", "last_entry_id", "bookie", "finding", "detail")
    output.table(findings if output.as_json else findings[:FINDINGS_SHOWN_MAX], *columns)
    if not output.as_json and len(findings) > FINDINGS_SHOWN_MAX:
        output.remark(f"and {len(findings) - FINDINGS_SHOWN_MAX:,} more: -o json prints all")
    output.remark(f"{len(findings):,} findings" if findings else "every replica is sound")
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _archive(arguments: argparse.Namespace, output: Output) -> int:
    def job(spark: "SparkSession") -> Row:
        from spark_io.pipelines.archive import archive
        from spark_io.pipelines.scrub import closed_ledger_ids

        ids = arguments.ledgers or closed_ledger_ids(address)
        done = archive(spark, address, arguments.path, ids, options=options)
        return {
            "archived_ledgers": done.ledger_count,
            "entries": done.entry_count,
            "bytes": done.payload_bytes,
            "already_there": done.skipped_count,
        }

    address, options = metadata_address(arguments), _password_options(arguments)
    output.record(await _run(arguments, output, "archived", job))
    return ExitCode.DONE


async def _restore(arguments: argparse.Namespace, output: Output) -> int:
    def job(spark: "SparkSession") -> dict[int, int]:
        from spark_io.pipelines.restore import restore

        ids = arguments.ledgers or None
        return restore(
            spark, address, arguments.path, arguments.chain, ledger_ids=ids, options=options
        )

    address, options = metadata_address(arguments), _secret_options(arguments)
    restored = await _run(arguments, output, "restored", job)
    output.table(
        ({"archived_id": old, "ledger_id": new} for old, new in sorted(restored.items())),
        "archived_id",
        "ledger_id",
    )
    return ExitCode.DONE


async def _ingest(arguments: argparse.Namespace, output: Output) -> int:
    def job(spark: "SparkSession") -> Row:
        from spark_io.pipelines.ingest import ingest, lines_of

        lines = lines_of(spark, arguments.files)
        done = ingest(lines, address, arguments.chain, options=options)
        return {
            "chain": done.chain,
            "ledgers": done.ledger_count,
            "entries": done.entry_count,
            "bytes": done.payload_bytes,
        }

    address, options = metadata_address(arguments), _secret_options(arguments)
    output.record(await _run(arguments, output, "ingested", job))
    return ExitCode.DONE


async def _tail(arguments: argparse.Namespace, output: Output) -> int:
    def job(spark: "SparkSession") -> Row:
        from spark_io.pipelines.tail_to_table import tail_to_table

        query = tail_to_table(
            spark,
            address,
            arguments.chain,
            arguments.path,
            arguments.checkpoint,
            table_format=arguments.format,
            options=options,
            interval=arguments.interval,
        )
        query.awaitTermination()
        rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return {"path": arguments.path, "chain": arguments.chain, "new_rows": rows}

    address, options = metadata_address(arguments), source_options(arguments)
    output.record(await _run(arguments, output, "read", job))
    return ExitCode.DONE


async def _run(
    arguments: argparse.Namespace,
    output: Output,
    what: str,
    job: Callable[["SparkSession"], ResultT],
) -> ResultT:
    """Start Spark, run a job in a thread while its tasks are counted, and stop Spark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from spark_io.errors import SparkIoError
    from spark_io.launching import session

    output.remark("starting Spark")
    try:
        spark = await asyncio.to_thread(session, master=arguments.master)
    except (SparkIoError, PySparkException, Py4JError) as error:
        raise SparkJobError(f"Spark did not start: {describe_failure(str(error))}") from error
    spark.sparkContext.setLogLevel("OFF")
    progress = Progress(output, what, "tasks")
    running = asyncio.create_task(asyncio.to_thread(job, spark))
    try:
        while not running.done():
            await asyncio.wait([running], timeout=POLL_S)
            done, progress.total = _tasks(spark)
            progress.advance(max(0, done - progress.done))
        result = await running
        progress.total = progress.done  # stages that Spark skipped were never run
        return result
    except PySparkException as error:
        raise SparkJobError(describe_failure(str(error))) from error
    except SparkIoError as error:
        raise SparkJobError(str(error)) from error
    finally:
        progress.end()
        await asyncio.to_thread(spark.stop)


def describe_failure(text: str) -> str:
    """Return the reason from the text of a Spark exception, which may contain the tracebacks of a
    Python worker and of Java: the last line that names an error of Quire, or else the first line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(OUR_MODULES) and "Error: " in line]
    if not ours:
        return lines[0] if lines else "the job failed, and Spark gave no reason"
    return ours[-1].partition(": ")[2]


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """Return the number of finished tasks and of all tasks, over all stages so far."""
    tracker = spark.sparkContext.statusTracker()
    done = count = 0
    for job_id in tracker.getJobIdsForGroup():
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done, count = done + stage.numCompletedTasks, count + stage.numTasks
    return done, count


def _password_options(arguments: argparse.Namespace) -> dict[str, str]:
    path = arguments.password_file
    return {} if path is None else {"passwordFile": str(path)}


def _secret_options(arguments: argparse.Namespace) -> dict[str, str]:
    path = arguments.key_file
    return _password_options(arguments) | ({} if path is None else {"keyFile": str(path)})


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the `ledger` source from those of `tail-to-table`."""
    options = _secret_options(arguments)
    if arguments.allow_data_loss:
        options["failOnDataLoss"] = "false"
    return options


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default: this machine)"
    )
    parser.add_argument(
        "--password-file", metavar="FILE", help="file with the ledgers' password (default: empty)"
    )


def _add_key_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="keys with which payloads are encrypted: a file with this path on each machine",
    )


def _add_ledgers(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--ledger",
        dest="ledgers",
        type=ledger_id,
        action="append",
        metavar="ID",
        help=f"may be given several times; {default}",
    )
