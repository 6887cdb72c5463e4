import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The load, through Kafka's client. Argument: the bootstrap servers.
 *
 * A variant is a topic of one partition on three brokers: "default" (flushed by the
 * system), "synced" (flush.messages=1). There is one way to read: "consumer".
 */
final class KafkaLoad extends LoadClient {
    private static final String FILLED = "filled";
    private static final List<String> TOPICS = List.of("default", "synced", FILLED);
    private static final short REPLICAS = 3;
    private static final String BATCH_BYTES = "1000000";
    private static final long READY_TIMEOUT_NANOS = 60_000_000_000L;

    private final String servers;
    private KafkaProducer<byte[], byte[]> producer;
    private String topic;
    private long filledCount;

    private KafkaLoad(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        new KafkaLoad(arguments[0]).serve();
    }

    @Override
    void ready() throws Exception {
        long deadline = System.nanoTime() + READY_TIMEOUT_NANOS;
        try (Admin admin = Admin.create(settings())) {
            while (admin.describeCluster().nodes().get().size() < REPLICAS) {
                waitABit(deadline, "too few brokers");
            }
            List<NewTopic> topics = new ArrayList<>();
            for (String name : TOPICS) {
                Map<String, String> own = name.equals("synced")
                    ? Map.of("min.insync.replicas", "2", "flush.messages", "1")
                    : Map.of("min.insync.replicas", "2");
                topics.add(new NewTopic(name, 1, REPLICAS).configs(own));
            }
            admin.createTopics(topics).all().get();
            while (!areInSync(admin)) {
                waitABit(deadline, "replicas are not in sync");
            }
        }
    }

    private static boolean areInSync(Admin admin) throws Exception {
        try {
            return admin.describeTopics(TOPICS).allTopicNames().get().values().stream().allMatch(
                described -> described.partitions().stream().map(TopicPartitionInfo::isr)
                    .allMatch(members -> members.size() == REPLICAS));
        } catch (ExecutionException error) { // a broker that does not have it yet
            return false;
        }
    }

    private static void waitABit(long deadline, String what) throws Exception {
        if (System.nanoTime() > deadline) {
            throw new IllegalStateException(what);
        }
        Thread.sleep(100);
    }

    @Override
    void begin(String variant, boolean isBatching) {
        Properties settings = settings();
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", isBatching ? "5" : "0");
        settings.put("batch.size", BATCH_BYTES);
        settings.put("buffer.memory", "67108864");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        topic = variant;
        producer = new KafkaProducer<>(settings);
        producer.partitionsFor(topic); // metadata is fetched before the clock starts
    }

    @Override
    void append(byte[] payload, Completion completion) {
        producer.send(new ProducerRecord<>(topic, 0, null, payload),
            (metadata, error) -> completion.done(error));
    }

    @Override
    Map<String, Object> end() {
        producer.close();
        return Map.of();
    }

    @Override
    String members() {
        return servers;
    }

    @Override
    String filledVariant() {
        return FILLED;
    }

    @Override
    void noteFilled(int count) {
        filledCount += count;
    }

    @Override
    long[] read(String way) {
        Properties settings = settings();
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "10000");
        settings.put("max.partition.fetch.bytes", "8388608");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        long[] found = new long[2];
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = List.of(new TopicPartition(FILLED, 0));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            while (found[0] < filledCount) {
                for (ConsumerRecord<byte[], byte[]> entry : consumer.poll(Duration.ofSeconds(1))) {
                    found[0]++;
                    found[1] += entry.value().length;
                }
            }
        }
        return found;
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }
}
