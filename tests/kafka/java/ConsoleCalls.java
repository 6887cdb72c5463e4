// Calls of AKHQ and of kafbat's console, in their order: `ConsoleCalls FILE.properties WORLD.json` prints a JSON line for each.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ConsoleCalls {
    private static final long CALL_TIMEOUT_S = 30;
    private static final int RECORDS = 50;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Object> CONNECTION = new HashMap<>();

    private final String tool;
    private final Admin admin;
    private final String topic;
    private final String newTopic;
    private final List<String> groups;
    private final String idle;
    private final String user;

    private interface Call {
        Object make() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Properties found = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            found.load(file);
        }
        found.forEach((name, value) -> CONNECTION.put((String) name, value));
        JsonNode world = JSON.readTree(Path.of(arguments[1]).toFile());
        try (Admin admin = Admin.create(CONNECTION)) {
            new ConsoleCalls("AKHQ", admin, world).akhq();
            new ConsoleCalls("kafbat", admin, world).kafbat();
        }
        System.exit(0);
    }

    private ConsoleCalls(String tool, Admin admin, JsonNode world) {
        this.tool = tool;
        this.admin = admin;
        topic = world.get("topic").asText();
        newTopic = world.get("newTopic").asText() + "-" + tool;
        groups = new ArrayList<>();
        world.get("groups").forEach(each -> groups.add(each.asText()));
        idle = world.get("idle").asText() + "-" + tool;
        user = world.get("user").asText();
    }

    private void akhq() throws Exception {
        List<Integer> nodes = cluster("nodes", new DescribeClusterOptions());
        logDirs("nodes", nodes);
        brokerConfigs("nodes", nodes);
        topics("topics");
        call("topics", "beginningOffsets, endOffsets", this::consumerOffsets);
        topicConfigs("topics", topic, false);
        groups("groups");
        accessRules("access rules");
        changeTopic("topic");
        changeGroup("groups");
        call("topic", "deleteTopics", () -> done(admin.deleteTopics(List.of(newTopic)).all()));
    }

    private void kafbat() throws Exception {
        List<Integer> nodes = cluster("start", new DescribeClusterOptions());
        brokerConfigs("start", nodes);
        call("start", "describeFeatures", () -> {
            var found = done(admin.describeFeatures().featureMetadata());
            return Map.of("finalized", found.finalizedFeatures().size());
        });
        accessRules("start");
        call("dashboard", "describeMetadataQuorum", () -> done(admin.describeMetadataQuorum().quorumInfo()));
        cluster("dashboard", new DescribeClusterOptions().includeAuthorizedOperations(true));
        logDirs("brokers", nodes);
        call("brokers", "describeReplicaLogDirs", () -> replicaLogDirs(nodes));
        call("brokers", "alterReplicaLogDirs", () -> done(admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(topic, 0, nodes.get(0)), "/elsewhere")).all()));
        call("brokers", "incrementalAlterConfigs of a broker", () -> done(alter(
            new ConfigResource(ConfigResource.Type.BROKER, "" + nodes.get(0)), "log.retention.ms", "1000")));
        topics("topics");
        offsets("topics", topic);
        topicConfigs("topic", topic, true);
        call("topic", "describeProducers", () -> {
            var found = done(admin.describeProducers(places(topic, 3)).all());
            return Map.of("partitions", found.size(), "producers",
                found.values().stream().mapToInt(each -> each.activeProducers().size()).sum());
        });
        groups("consumers");
        changeTopic("topic");
        call("topic", "alterPartitionReassignments", () -> {
            var wanted = Optional.of(new NewPartitionReassignment(List.of(nodes.get(0))));
            done(admin.alterPartitionReassignments(Map.of(new TopicPartition(newTopic, 0), wanted)).all());
            return Map.of("left", done(admin.listPartitionReassignments().reassignments()).size());
        });
        call("topic", "alterPartitionReassignments, replication factor", () -> {
            var wanted = Optional.of(new NewPartitionReassignment(nodes));
            return done(admin.alterPartitionReassignments(Map.of(new TopicPartition(newTopic, 0), wanted)).all());
        });
        changeGroup("consumers");
        quotas("quotas");
        changeAccessRules("access rules");
        call("topic", "deleteTopics", () -> done(admin.deleteTopics(List.of(newTopic)).all()));
    }

    private List<Integer> cluster(String page, DescribeClusterOptions options) throws Exception {
        List<Integer> nodes = new ArrayList<>();
        call(page, "describeCluster", () -> {
            var found = admin.describeCluster(options);
            done(found.nodes()).stream().map(Node::id).sorted().forEach(nodes::add);
            var operations = done(found.authorizedOperations());
            return Map.of("cluster", done(found.clusterId()), "controller", done(found.controller()).id(),
                "brokers", nodes, "operations", operations == null ? List.of() : operations);
        });
        return nodes;
    }

    private void logDirs(String page, List<Integer> nodes) throws Exception {
        call(page, "describeLogDirs", () -> {
            Map<String, Long> sizes = new TreeMap<>();
            Map<String, Long> brokers = new TreeMap<>();
            int spaces = 0;
            for (var broker : done(admin.describeLogDirs(nodes).allDescriptions()).entrySet()) {
                for (var directory : broker.getValue().values()) {
                    check(directory.error() == null, directory);
                    spaces += directory.totalBytes().isPresent() ? 1 : 0;
                    directory.replicaInfos().forEach((place, replica) -> {
                        brokers.merge("" + broker.getKey(), replica.size(), Long::sum);
                        if (place.topic().equals(topic)) {
                            sizes.merge(place.toString(), replica.size(), Long::sum);
                        }
                    });
                }
            }
            return Map.of("sizes", sizes, "brokers", brokers, "directories_with_space", spaces);
        });
    }

    private Object replicaLogDirs(List<Integer> nodes) throws Exception {
        List<TopicPartitionReplica> replicas = new ArrayList<>();
        for (int node : nodes) {
            places(topic, 3).forEach(place -> replicas.add(new TopicPartitionReplica(topic, place.partition(), node)));
        }
        Map<String, String> found = new TreeMap<>();
        done(admin.describeReplicaLogDirs(replicas).all()).forEach((replica, info) -> {
            if (info.getCurrentReplicaLogDir() != null) {
                found.put(replica.topic() + "-" + replica.partition(), info.getCurrentReplicaLogDir());
            }
        });
        return found;
    }

    private void brokerConfigs(String page, List<Integer> nodes) throws Exception {
        call(page, "describeConfigs of brokers", () -> configs(nodes.stream()
            .map(each -> new ConfigResource(ConfigResource.Type.BROKER, "" + each)).toList(), false));
    }

    private void topicConfigs(String page, String name, boolean all) throws Exception {
        call(page, "describeConfigs of a topic",
            () -> configs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, name)), all));
    }

    private Object configs(List<ConfigResource> resources, boolean all) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(all).includeDocumentation(all);
        Map<String, Map<String, String>> found = new TreeMap<>();
        done(admin.describeConfigs(resources, options).all()).forEach((resource, config) -> {
            Map<String, String> values = new TreeMap<>();
            config.entries().forEach(each -> values.put(each.name(), each.value()));
            found.put(resource.name(), values);
        });
        return found;
    }

    private void topics(String page) throws Exception {
        call(page, "listTopics, describeTopics", () -> {
            var names = done(admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
            var found = done(admin.describeTopics(names).allTopicNames());
            var partitions = found.get(topic).partitions();
            return Map.of("topics", found.size(), "partitions", partitions.size(),
                "leaders", partitions.stream().map(each -> each.leader().id()).toList(),
                "replicas", partitions.stream().map(each -> each.replicas().size()).toList(),
                "in_sync", partitions.stream().map(each -> each.isr().size()).toList());
        });
    }

    private Object consumerOffsets() {
        var settings = new HashMap<>(CONNECTION);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return Map.of("starts", shown(consumer.beginningOffsets(places(topic, 3))),
                "ends", shown(consumer.endOffsets(places(topic, 3))));
        }
    }

    private void offsets(String page, String name) throws Exception {
        call(page, "listOffsets", () -> Map.of("starts", shown(listed(places(name, 3), OffsetSpec.earliest())),
            "ends", shown(listed(places(name, 3), OffsetSpec.latest()))));
    }

    private Map<TopicPartition, Long> listed(Collection<TopicPartition> places, OffsetSpec spec) throws Exception {
        var asked = places.stream().collect(Collectors.toMap(each -> each, each -> spec));
        Map<TopicPartition, Long> offsets = new HashMap<>();
        done(admin.listOffsets(asked).all()).forEach((place, found) -> offsets.put(place, found.offset()));
        return offsets;
    }

    private void groups(String page) throws Exception {
        call(page, "listGroups", () -> done(admin.listGroups().all()).stream().collect(Collectors.toMap(
            each -> each.groupId(), each -> each.groupState().map(Object::toString).orElse(""))));
        call(page, "describeConsumerGroups", () -> {
            Map<String, Object> found = new TreeMap<>();
            done(admin.describeConsumerGroups(groups).all()).forEach((name, group) -> found.put(name, Map.of(
                "state", group.groupState().toString(), "members", group.members().size(),
                "coordinator", group.coordinator().id(),
                "assigned", group.members().stream().flatMap(each -> each.assignment().topicPartitions().stream())
                    .map(TopicPartition::toString).sorted().toList())));
            return found;
        });
        call(page, "listConsumerGroupOffsets, listOffsets", () -> lags(groups));
    }

    private Object lags(List<String> names) throws Exception {
        var specs = names.stream().collect(Collectors.toMap(
            each -> each, each -> new ListConsumerGroupOffsetsSpec()));
        Map<String, Object> found = new TreeMap<>();
        for (var group : done(admin.listConsumerGroupOffsets(specs).all()).entrySet()) {
            Map<TopicPartition, Long> behind = listed(group.getValue().keySet(), OffsetSpec.latest());
            group.getValue().forEach((place, committed) -> behind.merge(place, -committed.offset(), Long::sum));
            found.put(group.getKey(), shown(behind));
        }
        return found;
    }

    private void accessRules(String page) throws Exception {
        call(page, "describeAcls", () -> {
            try {
                return Map.of("authorizer", true, "rules", done(admin.describeAcls(AclBindingFilter.ANY).values()).size());
            } catch (SecurityDisabledException error) {
                return Map.of("authorizer", false); // both consoles hide the page then
            }
        });
    }

    private void changeAccessRules(String page) throws Exception {
        AclBinding rule = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.ALLOW));
        call(page, "createAcls", () -> done(admin.createAcls(List.of(rule)).all()));
        accessRules(page);
        call(page, "deleteAcls",
            () -> Map.of("rules", done(admin.deleteAcls(List.of(rule.toFilter())).all()).size()));
    }

    private void changeTopic(String page) throws Exception {
        call(page, "createTopics", () -> {
            var made = new NewTopic(newTopic, 2, (short) 3).configs(Map.of("retention.ms", "3600000"));
            return done(admin.createTopics(List.of(made)).all());
        });
        call(page, "incrementalAlterConfigs", () -> done(alter(
            new ConfigResource(ConfigResource.Type.TOPIC, newTopic), "retention.ms", "7200000")));
        topicConfigs(page, newTopic, true);
        call(page, "createPartitions",
            () -> done(admin.createPartitions(Map.of(newTopic, NewPartitions.increaseTo(3))).all()));
        call(page, "produce", () -> produce(newTopic));
        call(page, "deleteRecords", () -> done(admin.deleteRecords(
            Map.of(new TopicPartition(newTopic, 0), RecordsToDelete.beforeOffset(RECORDS / 2))).all()));
        offsets(page, newTopic);
    }

    private static Object produce(String topic) throws Exception {
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(CONNECTION, serializer, serializer)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[10]));
            }
        }
        return Map.of("records", RECORDS);
    }

    private KafkaFuture<Void> alter(ConfigResource resource, String name, String value) {
        var change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all();
    }

    private void changeGroup(String page) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        call(page, "alterConsumerGroupOffsets", () -> done(
            admin.alterConsumerGroupOffsets(idle, Map.of(place, new OffsetAndMetadata(7))).all()));
        call(page, "listConsumerGroupOffsets", () -> lags(List.of(idle)));
        call(page, "deleteConsumerGroupOffsets",
            () -> done(admin.deleteConsumerGroupOffsets(idle, java.util.Set.of(place)).all()));
        call(page, "alterConsumerGroupOffsets, again", () -> done( // without offsets there is no group
            admin.alterConsumerGroupOffsets(idle, Map.of(place, new OffsetAndMetadata(7))).all()));
        call(page, "deleteConsumerGroups", () -> done(admin.deleteConsumerGroups(List.of(idle)).all()));
    }

    private void quotas(String page) throws Exception {
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        call(page, "alterClientQuotas", () -> done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 2097152.0))))).all()));
        call(page, "describeClientQuotas", () -> {
            Map<String, Object> rates = new TreeMap<>();
            done(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).forEach(
                (found, values) -> rates.put(found.entries().toString(), values));
            return rates;
        });
        call(page, "alterClientQuotas, removal", () -> done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", null))))).all()));
    }

    private void call(String page, String name, Call call) throws Exception {
        Map<String, Object> line = new TreeMap<>(Map.of("tool", tool, "page", page, "call", name, "result", "ok"));
        try {
            Object figures = call.make();
            if (figures != null) {
                line.put("figures", figures);
            }
        } catch (UnsupportedVersionException error) {
            line.put("result", "not supported");
        } catch (Exception error) {
            line.put("result", "error");
            line.put("error", error.toString());
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    private static <T> T done(KafkaFuture<T> future) throws Exception {
        try {
            return future.get(CALL_TIMEOUT_S, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    private static List<TopicPartition> places(String topic, int count) {
        List<TopicPartition> found = new ArrayList<>();
        for (int partition = 0; partition < count; partition++) {
            found.add(new TopicPartition(topic, partition));
        }
        return found;
    }

    private static Map<String, Long> shown(Map<TopicPartition, Long> values) {
        Map<String, Long> found = new TreeMap<>();
        values.forEach((place, value) -> found.put(place.toString(), value));
        return found;
    }

    private static void check(boolean condition, Object fact) {
        if (!condition) {
            throw new AssertionError(fact);
        }
    }
}
