// Scenarios of Spark's own Kafka connector: `SparkConnector NAME HOST:PORT DIRECTORY`; ends with 0 if all was right.

import static org.apache.spark.sql.functions.col;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

public final class SparkConnector {
    private static final int PARTITIONS = 3;
    private static final long ROWS = 20_000;
    private static final long END_TIMEOUT_MS = 90_000;
    private static String address;
    private static String directory;
    private static SparkSession spark;

    public static void main(String[] arguments) throws Exception {
        address = arguments[1];
        directory = arguments[2];
        spark = SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.local.dir", directory)
            .getOrCreate();
        switch (arguments[0]) {
            case "batch" -> batch();
            case "streaming" -> streaming();
            case "committed" -> committed();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        spark.stop();
        System.exit(0);
    }

    /** Writes a dataset to a topic, and reads it whole, by offsets and by time. */
    private static void batch() throws Exception {
        String topic = topic();
        append(topic, 0, ROWS);
        check(numbers(read(topic).load()), 0, ROWS);

        Row first = read(topic).load().orderBy("partition", "offset").first();
        equal(first.<Long>getAs("offset"), 0L, "first offset");
        equal(first.<String>getAs("topic"), topic, "topic");
        long perPartition = ROWS / PARTITIONS / 2;
        StringBuilder offsets = new StringBuilder();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            offsets.append(partition == 0 ? "" : ",").append('"').append(partition).append("\":").append(perPartition);
        }
        String json = "{\"" + topic + "\":{" + offsets + "}}";
        long before = read(topic).option("endingOffsets", json).load().count();
        long after = read(topic).option("startingOffsets", json).load().count();
        equal(before, perPartition * PARTITIONS, "rows below the offsets");
        equal(before + after, ROWS, "rows below and above the offsets");

        Thread.sleep(50);
        long between = System.currentTimeMillis();
        Thread.sleep(50);
        append(topic, ROWS, 2 * ROWS);
        Dataset<Row> later = read(topic).option("startingTimestamp", Long.toString(between)).load();
        check(numbers(later), ROWS, 2 * ROWS);
        check(numbers(read(topic).option("minPartitions", "8").load()), 0, 2 * ROWS);
    }

    /** Copies a topic into another one: all that is there, after a restart, and while it is written. */
    private static void streaming() throws Exception {
        String source = topic();
        String sink = topic();
        append(source, 0, ROWS);
        StreamingQuery query = copy(source, sink, Trigger.AvailableNow());
        end(query);
        append(source, ROWS, 2 * ROWS);
        end(copy(source, sink, Trigger.AvailableNow()));
        check(numbers(read(sink).load()), 0, 2 * ROWS);

        query = copy(source, sink, Trigger.ProcessingTime(100));
        for (long start = 2 * ROWS; start < 4 * ROWS; start += ROWS / 2) {
            append(source, start, start + ROWS / 2);
        }
        query.processAllAvailable();
        query.stop();
        check(numbers(read(sink).load()), 0, 4 * ROWS);
    }

    /** Sees what was committed alone. */
    private static void committed() throws Exception {
        String topic = topic();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("transactional.id", UUID.randomUUID().toString());
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int transaction = 0; transaction < 6; transaction++) {
                producer.beginTransaction();
                boolean commits = transaction % 2 == 0;
                for (int number = 0; number < 100; number++) {
                    long value = commits ? transaction / 2 * 100 + number : -1;
                    producer.send(new ProducerRecord<>(topic, Integer.toString(number), Long.toString(value)));
                }
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        check(numbers(read(topic).option("kafka.isolation.level", "read_committed").load()), 0, 300);
    }

    private static String topic() throws Exception {
        String name = "spark-" + UUID.randomUUID();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) -1))).all().get();
        }
        return name;
    }

    private static void append(String topic, long start, long end) {
        spark.range(start, end)
            .select(col("id").cast("string").as("key"), col("id").cast("string").as("value"))
            .write()
            .format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("topic", topic)
            .save();
    }

    private static org.apache.spark.sql.DataFrameReader read(String topic) {
        return spark.read().format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic);
    }

    private static StreamingQuery copy(String source, String sink, Trigger trigger) throws Exception {
        return spark.readStream()
            .format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS / 4)
            .load()
            .select("key", "value")
            .writeStream()
            .format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("topic", sink)
            .option("checkpointLocation", directory + "/checkpoint")
            .trigger(trigger)
            .start();
    }

    private static void end(StreamingQuery query) throws Exception {
        if (!query.awaitTermination(END_TIMEOUT_MS)) {
            throw new AssertionError("the query goes on: " + query.lastProgress());
        }
    }

    private static Dataset<Row> numbers(Dataset<Row> rows) {
        return rows.select(col("value").cast("string").cast("long").as("number"));
    }

    /** Raises unless the rows are each number of the range, once. */
    private static void check(Dataset<Row> rows, long start, long end) {
        Row found = rows.selectExpr("count(*)", "count(distinct number)", "min(number)", "max(number)").first();
        equal(found.getLong(0), end - start, "rows");
        equal(found.getLong(1), end - start, "different rows");
        equal(found.getLong(2), start, "least");
        equal(found.getLong(3), end - 1, "greatest");
    }

    private static void equal(Object found, Object wanted, String what) {
        if (!wanted.equals(found)) {
            throw new AssertionError(what + ": " + found + ", not " + wanted);
        }
    }
}
