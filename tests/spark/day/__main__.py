"""A day in the life of a ledger in Spark: `python -m tests.spark.day`.

Real lines are ingested into a chain while a streaming driver copies the chain and counts the lines
in windows, and is killed (-9) repeatedly. Then both chains and the table are compared with the
lines, archived, restored, and compared again. Prints the moments that were hit and one JSON line;
ends with status 1 if anything differs.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_io.launching import session
from tests.spark.conftest import BOOKIES, RunningCluster
from tests.spark.day.course import Day


def main() -> int:
    """Run one day; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.day")
    parser.add_argument("--lines", type=int, default=3_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, help="text; by default history and installed packages")
    options = parser.parse_args()
    cluster = RunningCluster(BOOKIES)
    try:
        spark = session("a day", master="local[2]", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("OFF")
        with TemporaryDirectory() as directory:
            day = Day(spark, cluster.metadata, Path(directory))
            report = day.run(options.lines, options.kills, options.seed, options.file)
        spark.stop()
    except (ValueError, OSError) as error:
        parser.error(str(error))
    finally:
        cluster.stop()
    print(json.dumps(report.as_json()))
    return 1 if report.differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
