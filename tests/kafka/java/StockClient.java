// Scenarios of Apache Kafka's Java client: `StockClient NAME FILE.properties`; ends with 0 if all was right.

import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class StockClient {
    private static final int RECORDS = 60;
    private static final long FIRST_MS = 1_700_000_000_000L;
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final Map<String, Object> CONNECTION = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Properties found = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[1]))) {
            found.load(file);
        }
        found.forEach((name, value) -> CONNECTION.put((String) name, value));
        switch (arguments[0]) {
            case "connect" -> connect();
            case "compression" -> compression();
            case "acks" -> acks();
            case "seek" -> seek();
            case "too-large" -> tooLarge();
            case "group-classic" -> group("classic");
            case "group-newer" -> group("consumer");
            case "transactions" -> transactions();
            case "admin" -> admin();
            case "describe" -> describe();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private static void connect() throws Exception {
        try (Admin admin = Admin.create(CONNECTION)) {
            admin.listTopics().names().get();
        }
    }

    private static void compression() throws Exception {
        String topic = newTopic(1);
        List<String> expected = new ArrayList<>();
        for (String type : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            List<String> values = values(expected.size(), RECORDS);
            produce(topic, 0, values, Map.of("compression.type", type));
            expected.addAll(values);
        }
        same(expected, readFirst(topic, expected.size(), "read_uncommitted"));
    }

    private static void acks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = newTopic(1);
            produce(topic, 0, values(0, RECORDS), Map.of("acks", acks, "enable.idempotence", "false"));
            same(values(0, RECORDS), readFirst(topic, RECORDS, "read_uncommitted"));
        }
    }

    private static void seek() throws Exception {
        String topic = newTopic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        produce(topic, 0, values(0, RECORDS), Map.of());
        try (KafkaConsumer<String, String> consumer = consumer(fresh("group"), Map.of())) {
            consumer.assign(List.of(place));
            same(11L, consumer.offsetsForTimes(Map.of(place, FIRST_MS + 10_500)).get(place).offset());
            same((long) RECORDS, consumer.endOffsets(List.of(place)).get(place));
            same(0L, consumer.beginningOffsets(List.of(place)).get(place));
            consumer.seek(place, 40);
            same(40L, read(consumer, 1).get(0).offset());
            consumer.seekToBeginning(List.of(place));
            same(0L, read(consumer, 1).get(0).offset());
        }
    }

    private static void tooLarge() throws Exception {
        String topic = newTopic(1);
        try {
            produce(topic, 0, List.of("x".repeat(1_500_000)), Map.of("max.request.size", "3000000"));
        } catch (java.util.concurrent.ExecutionException error) {
            check(error.getCause() instanceof RecordTooLargeException, error);
            return;
        }
        throw new AssertionError("a record above max.message.bytes was taken");
    }

    private static void group(String protocol) throws Exception {
        String topic = newTopic(4);
        String group = fresh("group");
        for (int partition = 0; partition < 4; partition++) {
            produce(topic, partition, values(0, RECORDS), Map.of());
        }
        Map<String, Object> more = new HashMap<>(Map.of("group.protocol", protocol));
        if (protocol.equals("classic")) {
            more.put("heartbeat.interval.ms", "300");
        }
        try (KafkaConsumer<String, String> first = consumer(group, more)) {
            first.subscribe(List.of(topic));
            same(4 * RECORDS, read(first, 4 * RECORDS).size());
            first.commitSync();
            try (KafkaConsumer<String, String> second = consumer(group, more)) {
                second.subscribe(List.of(topic));
                pollUntilShared(List.of(first, second), 2);
            }
            pollUntilShared(List.of(first), 4);
        }
        produce(topic, 2, List.of("later"), Map.of());
        try (KafkaConsumer<String, String> third = consumer(group, more)) {
            third.subscribe(List.of(topic));
            same("later", read(third, 1).get(0).value());
        }
    }

    private static void pollUntilShared(List<KafkaConsumer<String, String>> members, int each) {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (members.stream().anyMatch(member -> member.assignment().size() != each)) {
            check(System.nanoTime() < deadline, "partitions are not shared");
            members.forEach(member -> same(0, member.poll(Duration.ofMillis(50)).count()));
        }
    }

    private static void transactions() throws Exception {
        String topic = newTopic(1);
        String group = fresh("group");
        String identity = fresh("transactional");
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = transactional(identity);
        try (KafkaConsumer<String, String> consumer = consumer(group, Map.of())) {
            for (int turn = 0; turn < 3; turn++) {
                producer.beginTransaction();
                for (String value : values(turn * 10, 10)) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value));
                }
                producer.flush();
                if (turn == 1) {
                    producer.abortTransaction();
                } else {
                    producer.sendOffsetsToTransaction(
                        Map.of(place, new OffsetAndMetadata(turn + 1)), consumer.groupMetadata());
                    producer.commitTransaction();
                }
            }
            same(3L, consumer.committed(Set.of(place)).get(place).offset());
        }
        List<String> expected = new ArrayList<>(values(0, 10));
        expected.addAll(values(20, 10));
        same(expected, readFirst(topic, 20, "read_committed"));
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "of the older"));
        producer.flush();
        KafkaProducer<String, String> newer = transactional(identity);
        try {
            producer.commitTransaction();
            throw new AssertionError("the older producer could commit");
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            producer.close(Duration.ZERO);
        }
        newer.beginTransaction();
        newer.send(new ProducerRecord<>(topic, 0, null, "of the newer"));
        newer.commitTransaction();
        newer.close();
        expected.add("of the newer");
        same(expected, readFirst(topic, 21, "read_committed"));
    }

    private static void admin() throws Exception {
        String topic = newTopic(2);
        String group = fresh("group");
        TopicPartition place = new TopicPartition(topic, 0);
        produce(topic, 0, values(0, RECORDS), Map.of());
        try (Admin admin = Admin.create(CONNECTION)) {
            same(2, admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            check(!admin.describeCluster().nodes().get().isEmpty(), "no nodes");
            for (var each : Map.of(OffsetSpec.earliest(), 0L, OffsetSpec.latest(), (long) RECORDS,
                    OffsetSpec.maxTimestamp(), RECORDS - 1L, OffsetSpec.forTimestamp(FIRST_MS + 1), 1L).entrySet()) {
                var found = admin.listOffsets(Map.of(place, each.getKey())).partitionResult(place).get();
                same(each.getValue(), found.offset());
            }
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            AlterConfigOp change = new AlterConfigOp(
                new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            var configs = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            same("7200000", configs.get("retention.ms").value());
            admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(5))).all().get();
            same(5L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place).offset());
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            same(GroupState.EMPTY, described.groupState());
            check(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "not listed");
            admin.deleteConsumerGroups(List.of(group)).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(25))).all().get();
            same(25L, admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset());
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    private static void describe() throws Exception {
        String topic = newTopic(4);
        String group = fresh("group");
        produce(topic, 1, values(0, RECORDS), Map.of());
        try (Admin admin = Admin.create(CONNECTION);
                var member = consumer(group, Map.of("group.protocol", "consumer", "client.id", "member",
                    "group.instance.id", "instance", "client.rack", "rack", "group.remote.assignor", "uniform"))) {
            member.subscribe(List.of(topic));
            same(RECORDS, read(member, RECORDS).size());
            member.commitSync();
            var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            same(GroupType.CONSUMER, found.type());
            same(GroupState.STABLE, found.groupState());
            same("uniform", found.partitionAssignor());
            check(found.groupEpoch().orElse(0) > 0, found);
            same(found.groupEpoch(), found.targetAssignmentEpoch());
            check(found.coordinator().port() > 0, found);
            same(1, found.members().size());
            var described = found.members().iterator().next();
            same("member", described.clientId());
            same(Optional.of("instance"), described.groupInstanceId());
            same(found.groupEpoch(), described.memberEpoch());
            same(Optional.of(true), described.upgraded());
            same(member.assignment(), described.assignment().topicPartitions());
            same(member.assignment(), described.targetAssignment().orElseThrow().topicPartitions());
            var listed = admin.listGroups().all().get().stream().filter(each -> each.groupId().equals(group)).toList();
            same(Optional.of(GroupType.CONSUMER), listed.get(0).type());
            same(Optional.of(GroupState.STABLE), listed.get(0).groupState());
        }
        try (Admin admin = Admin.create(CONNECTION)) {
            var left = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            check(left.groupState() == GroupState.EMPTY || left.members().size() == 1, left); // a static member stays
            try {
                String none = fresh("none");
                var dead = admin.describeConsumerGroups(List.of(none)).all().get().get(none);
                same(GroupState.DEAD, dead.groupState()); // as brokers say without DescribeGroups 6
            } catch (java.util.concurrent.ExecutionException error) {
                check(error.getCause() instanceof GroupIdNotFoundException, error);
            }
        }
    }

    private static String newTopic(int partitions) throws Exception {
        String topic = fresh("topic");
        try (Admin admin = Admin.create(CONNECTION)) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
        }
        return topic;
    }

    private static void produce(String topic, int partition, List<String> values, Map<String, String> more)
            throws Exception {
        Map<String, Object> settings = new HashMap<>(CONNECTION);
        settings.put("linger.ms", "5");
        settings.putAll(more);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            Collection<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (int number = 0; number < values.size(); number++) {
                waiting.add(producer.send(new ProducerRecord<>(
                    topic, partition, FIRST_MS + number * 1000L, "key " + number, values.get(number))));
            }
            for (Future<RecordMetadata> each : waiting) {
                each.get();
            }
        }
    }

    private static KafkaProducer<String, String> transactional(String identity) {
        Map<String, Object> settings = new HashMap<>(CONNECTION);
        settings.put("transactional.id", identity);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(CONNECTION);
        settings.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (found.size() < count) {
            check(System.nanoTime() < deadline, found.size() + " of " + count + " records came");
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        return found;
    }

    private static List<String> readFirst(String topic, int count, String isolation) {
        try (var consumer = consumer(fresh("group"), Map.of("isolation.level", isolation))) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            return read(consumer, count).stream().map(ConsumerRecord::value).toList();
        }
    }

    private static List<String> values(int start, int count) {
        List<String> values = new ArrayList<>();
        for (int number = start; number < start + count; number++) {
            values.add("value " + number);
        }
        return values;
    }

    private static String fresh(String kind) {
        return kind + "-" + UUID.randomUUID().toString().substring(0, 10);
    }

    private static void same(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    private static void check(boolean condition, Object fact) {
        if (!condition) {
            throw new AssertionError(fact);
        }
    }
}
