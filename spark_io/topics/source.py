"""The `topic` data source, as registered with Spark.

Leaves everything to the modules that its methods import; nothing connects before a query runs.

Source: Spark design; api design, "Spark"; docs/spark.md lists columns and options.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_io.errors import SchemaError
from spark_io.readers import describe_columns, require_columns, stream_reader
from spark_io.topics.options import TopicReadOptions, TopicWriteOptions
from spark_io.workers import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from spark_io.topics.readers import TopicBatchReader
    from spark_io.topics.write import (
        Columns,
        OnceBatchWriter,
        OnceStreamWriter,
        TopicBatchWriter,
        TopicStreamWriter,
    )


BINARY = ("binary", "string")
WRITABLE = {
    "key": BINARY,
    "value": BINARY,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Columns that may be written, and their types."""


class TopicDataSource(DataSource):
    """`spark.read.format("topic")`, and the same for streams and for writing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "topic"

    def schema(self) -> str:
        """Return the columns; without `headers` if they are not wanted."""
        from spark_io.topics.rows import DDL, DDL_WITHOUT_HEADERS  # noqa: PLC0415

        include_headers = str(self.options.get("includeHeaders", "true")).lower() == "true"
        return DDL if include_headers else DDL_WITHOUT_HEADERS

    @sentence_first()
    def reader(self, schema: "StructType") -> "TopicBatchReader":
        """Return the reader of a batch query."""
        from spark_io.topics.readers import TopicBatchReader  # noqa: PLC0415

        return TopicBatchReader(self._read_options(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return the reader of a streaming query."""
        from spark_io.topics.readers import TopicStreamReader  # noqa: PLC0415

        return stream_reader(lambda: TopicStreamReader(self._read_options(schema)))

    @sentence_first()
    def writer(
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> "TopicBatchWriter | OnceBatchWriter":
        """Return the writer of a batch job."""
        from spark_io.topics.write import (  # noqa: PLC0415
            OnceBatchWriter,
            TopicBatchWriter,
            prepare,
        )

        options, columns = self._write_options(schema, overwrite=overwrite)
        if options.exactly_once:
            return OnceBatchWriter(options, columns, prepare(options))
        return TopicBatchWriter(options, columns, prepare(options))

    @sentence_first()
    def streamWriter(  # noqa: N802
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> "TopicStreamWriter | OnceStreamWriter":
        """Return the writer of a streaming query."""
        from spark_io.topics.write import (  # noqa: PLC0415
            OnceStreamWriter,
            TopicStreamWriter,
            prepare,
        )

        options, columns = self._write_options(schema, overwrite=overwrite)
        if options.exactly_once:
            return OnceStreamWriter(options, columns, prepare(options))
        return TopicStreamWriter(options, columns, prepare(options))

    def _read_options(self, schema: "StructType") -> TopicReadOptions:
        require_columns("topics", self.schema(), schema)
        return TopicReadOptions.of(self.options)

    def _write_options(
        self, schema: "StructType", *, overwrite: bool
    ) -> "tuple[TopicWriteOptions, Columns]":
        from spark_io.topics.write import Columns  # noqa: PLC0415

        if overwrite:
            raise SchemaError("a topic can only be appended to: use the mode append")
        options = TopicWriteOptions.of(self.options)
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        wrong = [name for name, kind in kinds.items() if kind not in WRITABLE.get(name, ())]
        if wrong or "value" not in kinds:
            raise SchemaError(
                f"a topic takes the columns {WRITABLE}, of which value is required, but the "
                f"DataFrame has {describe_columns(schema)!r}"
            )
        if not options.topic and "topic" not in kinds:
            raise SchemaError("name the topic: with the option topic, or in a column topic")
        names = ("key", "topic", "partition", "headers")
        return options, Columns(*(name in kinds for name in names))
