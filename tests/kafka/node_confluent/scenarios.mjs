// Scenarios of @confluentinc/kafka-javascript, that is of librdkafka: `node scenarios.mjs NAME SETTINGS.json`;
// ends with 0 if all was right.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import confluent from "@confluentinc/kafka-javascript";

const { CompressionTypes, Kafka, logLevel } = confluent.KafkaJS;
const [, , scenario, file] = process.argv;
const common = JSON.parse(readFileSync(file, "utf8"));
const kafka = new Kafka({ kafkaJS: { logLevel: logLevel.ERROR }, ...common });
const RECORDS = 60;
const FIRST_MS = 1_700_000_000_000;
const TIMEOUT_MS = 60_000;

const fresh = (kind) => `${kind}-${randomBytes(5).toString("hex")}`;
const valuesOf = (count, start = 0) =>
  Array.from({ length: count }, (_, place) => `value ${String(start + place).padStart(6, "0")}`);
const messagesOf = (values, partition = 0) =>
  values.map((value, place) => ({
    value,
    partition,
    key: String(place),
    headers: { place: String(place) },
    timestamp: String(FIRST_MS + place * 1000),
  }));

async function withConnected(client, use) {
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.disconnect();
  }
}

async function newTopic(partitions = 1) {
  const topic = fresh("topic");
  const topics = [{ topic, numPartitions: partitions, replicationFactor: -1 }];
  await withConnected(kafka.admin(), (admin) => admin.createTopics({ topics }));
  return topic;
}

async function read(topic, count, { groupId = fresh("group"), settings = {} } = {}) {
  const found = [];
  const options = { groupId, fromBeginning: true, autoCommit: true, readUncommitted: false };
  const newer = settings["group.protocol"] === "consumer" ? { groupId, fromBeginning: true } : options;
  const consumer = kafka.consumer({ kafkaJS: newer, ...settings });
  await withConnected(consumer, async () => {
    await consumer.subscribe({ topic });
    await consumer.run({ eachMessage: async (each) => void found.push(each) });
    const deadline = Date.now() + TIMEOUT_MS;
    while (found.length < count) {
      assert.ok(Date.now() < deadline, `${found.length} of ${count} records came`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  return found;
}

const textOf = (found) => found.map(({ message }) => message.value.toString());

const scenarios = {
  async produce() {
    const topic = await newTopic();
    const ways = [
      { acks: -1 },
      { acks: -1, compression: CompressionTypes.GZIP },
      { acks: -1, compression: CompressionTypes.SNAPPY },
      { acks: 1, compression: CompressionTypes.LZ4 },
      { acks: 0 },
    ];
    for (const [place, way] of ways.entries()) {
      const messages = messagesOf(valuesOf(RECORDS, place * RECORDS));
      await withConnected(kafka.producer({ kafkaJS: way }), (producer) => producer.send({ topic, messages }));
    }
    const found = await read(topic, RECORDS * ways.length);
    assert.deepEqual(textOf(found), valuesOf(RECORDS * ways.length));
    assert.equal(found[7].message.timestamp, String(FIRST_MS + 7000));
    assert.equal(found[7].message.headers.place.toString(), "7");
    assert.equal(found[7].message.offset, "7");
  },

  async group() {
    for (const protocol of ["classic", "consumer"]) {
      const topic = await newTopic(4);
      const groupId = fresh("group");
      const settings = { "group.protocol": protocol };
      await withConnected(kafka.producer({ kafkaJS: { idempotent: true } }), async (producer) => {
        for (let partition = 0; partition < 4; partition += 1) {
          await producer.send({ topic, messages: messagesOf(valuesOf(RECORDS), partition) });
        }
      });
      const found = await read(topic, 4 * RECORDS, { groupId, settings });
      assert.deepEqual(new Set(found.map(({ partition }) => partition)), new Set([0, 1, 2, 3]));
      await withConnected(kafka.producer(), (producer) =>
        producer.send({ topic, messages: messagesOf(["later"], 2) }));
      assert.deepEqual(textOf(await read(topic, 1, { groupId, settings })), ["later"]);
    }
  },

  async transactions() {
    const topic = await newTopic();
    const options = { transactionalId: fresh("transactional") };
    await withConnected(kafka.producer({ kafkaJS: options }), async (producer) => {
      for (let turn = 0; turn < 3; turn += 1) {
        const transaction = await producer.transaction();
        await transaction.send({ topic, messages: messagesOf(valuesOf(10, turn * 10)) });
        await (turn === 1 ? transaction.abort() : transaction.commit());
      }
    });
    assert.deepEqual(textOf(await read(topic, 20)), [...valuesOf(10), ...valuesOf(10, 20)]);
  },

  async admin() {
    const topic = await newTopic(2);
    const groupId = fresh("group");
    await withConnected(kafka.producer(), (producer) =>
      producer.send({ topic, messages: messagesOf(valuesOf(RECORDS)) }));
    await read(topic, RECORDS, { groupId });
    await withConnected(kafka.admin(), async (admin) => {
      assert.ok((await admin.listTopics()).includes(topic));
      const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
      assert.equal(metadata[0].partitions.length, 2);
      const ends = await admin.fetchTopicOffsets(topic);
      assert.equal(ends.find((end) => end.partition === 0).high, String(RECORDS));
      const atTime = await admin.fetchTopicOffsetsByTimestamp(topic, FIRST_MS + 10_500);
      assert.equal(atTime.find((end) => end.partition === 0).offset, "11");
      assert.ok((await admin.listGroups()).groups.some((each) => each.groupId === groupId));
      assert.equal((await admin.describeGroups([groupId])).groups[0].groupId, groupId);
      const committed = await admin.fetchOffsets({ groupId, topics: [topic] });
      assert.equal(committed[0].partitions.find((each) => each.partition === 0).offset, String(RECORDS));
      await admin.deleteGroups([groupId]);
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "25" }] });
      const after = await admin.fetchTopicOffsets(topic);
      assert.equal(after.find((end) => end.partition === 0).low, "25");
      await admin.deleteTopics({ topics: [topic] });
    });
  },
};

await scenarios[scenario]();
process.exit(0);
