"""The `topic` data source, as Spark knows it.

Leaves everything to the modules that its methods import; nothing connects before a query runs.

Source: Spark design; api, "Spark"; docs/spark.md lists columns and options.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_io.errors import SchemaError
from spark_io.topic_options import TopicReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_io.topic_batch import TopicBatchReader
    from spark_io.topic_stream import TopicStreamReader


class TopicDataSource(DataSource):
    """`spark.read.format("topic")`, and the same for streams and for writing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "topic"

    def schema(self) -> str:
        """Return the columns; without `headers` where they are not asked for."""
        from spark_io.topic_rows import DDL, DDL_WITHOUT_HEADERS  # noqa: PLC0415

        include_headers = str(self.options.get("includeHeaders", "true")).lower() == "true"
        return DDL if include_headers else DDL_WITHOUT_HEADERS

    def reader(self, schema: "StructType") -> "TopicBatchReader":
        """Return what plans and reads a batch query."""
        from spark_io.topic_batch import TopicBatchReader  # noqa: PLC0415

        return TopicBatchReader(self._read_options(schema))

    def streamReader(self, schema: "StructType") -> "TopicStreamReader":  # noqa: N802
        """Return what follows topics for a streaming query."""
        from spark_io.topic_stream import TopicStreamReader  # noqa: PLC0415

        return TopicStreamReader(self._read_options(schema))

    def _read_options(self, schema: "StructType") -> TopicReadOptions:
        wanted, found = self.schema(), _describe(schema)
        if found != wanted:
            raise SchemaError(
                f"the columns of topics are {wanted!r}; the schema that was given is {found!r}: "
                "leave it out, and select or cast afterwards"
            )
        return TopicReadOptions.of(self.options)


def _describe(schema: "StructType") -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
