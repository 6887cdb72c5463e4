// Scenarios of kafkajs: `node scenarios.mjs NAME OPTIONS.json`; ends with 0 if all was right.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const { CompressionTypes, Kafka, logLevel } = kafkajs;
const [, , scenario, options] = process.argv;
const kafka = new Kafka({ clientId: "scenarios", logLevel: logLevel.ERROR, ...JSON.parse(readFileSync(options, "utf8")) });
const RECORDS = 60;
const FIRST_MS = 1_700_000_000_000;
const TIMEOUT_MS = 60_000;

const fresh = (kind) => `${kind}-${randomBytes(5).toString("hex")}`;
const valuesOf = (count, start = 0) =>
  Array.from({ length: count }, (_, place) => `value ${String(start + place).padStart(6, "0")}`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function withAdmin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function newTopic(partitions = 1) {
  const topic = fresh("topic");
  const topics = [{ topic, numPartitions: partitions, replicationFactor: -1 }];
  await withAdmin((admin) => admin.createTopics({ topics, waitForLeaders: true }));
  return topic;
}

async function withProducer(options, use) {
  const producer = kafka.producer(options);
  await producer.connect();
  try {
    return await use(producer);
  } finally {
    await producer.disconnect();
  }
}

function messagesOf(values, partition = 0) {
  return values.map((value, place) => ({
    value,
    partition,
    key: String(place),
    headers: { place: String(place) },
    timestamp: String(FIRST_MS + place * 1000),
  }));
}

async function until(condition, what) {
  const deadline = Date.now() + TIMEOUT_MS;
  while (!condition()) {
    assert.ok(Date.now() < deadline, what());
    await pause(50);
  }
}

async function startConsumer(topic, groupId, found, more = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, sessionTimeout: 10_000, ...more });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const running = { consumer, partitions: null };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    running.partitions = payload.memberAssignment[topic] ?? [];
  });
  await consumer.run({ eachMessage: async ({ message }) => void found.push(message) });
  return running;
}

async function read(topic, count, more = {}) {
  const found = [];
  const { consumer } = await startConsumer(topic, fresh("group"), found, more);
  await until(() => found.length >= count, () => `${found.length} of ${count} records came`);
  await consumer.disconnect();
  return found.slice(0, count);
}

const textOf = (messages) => messages.map((message) => message.value.toString());

const scenarios = {
  async connect() {
    const admin = kafka.admin({ retry: { retries: 0 } });
    await admin.connect();
    await admin.listTopics();
    await admin.disconnect();
  },

  async produce() {
    const topic = await newTopic();
    const ways = [
      { acks: -1, compression: CompressionTypes.None },
      { acks: -1, compression: CompressionTypes.GZIP },
      { acks: 1, compression: CompressionTypes.None },
      { acks: 0, compression: CompressionTypes.None },
    ];
    await withProducer({}, async (producer) => {
      for (const [place, way] of ways.entries()) {
        const messages = messagesOf(valuesOf(RECORDS, place * RECORDS));
        await producer.send({ topic, messages, ...way });
      }
    });
    const found = await read(topic, RECORDS * ways.length);
    assert.deepEqual(textOf(found), valuesOf(RECORDS * ways.length));
    assert.equal(found[7].timestamp, String(FIRST_MS + 7000));
    assert.equal(found[7].headers.place.toString(), "7");
    assert.equal(found[7].offset, "7");
  },

  async idempotent() {
    const topic = await newTopic();
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      for (let start = 0; start < 200; start += 20) {
        await producer.send({ topic, messages: messagesOf(valuesOf(20, start)) });
      }
    });
    assert.deepEqual(textOf(await read(topic, 200)), valuesOf(200));
  },

  async group() {
    const topic = await newTopic(4);
    const group = fresh("group");
    await withProducer({}, async (producer) => {
      for (let partition = 0; partition < 4; partition += 1) {
        await producer.send({ topic, messages: messagesOf(valuesOf(RECORDS), partition) });
      }
    });
    const found = [];
    const first = await startConsumer(topic, group, found);
    await until(() => found.length === 4 * RECORDS, () => `${found.length} records came`);
    const second = await startConsumer(topic, group, found);
    await until(
      () => first.partitions?.length === 2 && second.partitions?.length === 2,
      () => "two members do not share",
    );
    await first.consumer.disconnect();
    await second.consumer.disconnect();
    await withProducer({}, (producer) => producer.send({ topic, messages: messagesOf(["later"], 2) }));
    const later = [];
    const third = await startConsumer(topic, group, later);
    await until(() => later.length > 0, () => "nothing came");
    await third.consumer.disconnect();
    assert.deepEqual(textOf(later), ["later"]);
  },

  async transactions() {
    const topic = await newTopic();
    const group = fresh("group");
    const options = { transactionalId: fresh("transactional"), idempotent: true, maxInFlightRequests: 1 };
    await withProducer(options, async (producer) => {
      for (const [place, commits] of [true, false, true].entries()) {
        const transaction = await producer.transaction();
        await transaction.send({ topic, messages: messagesOf(valuesOf(10, place * 10)) });
        if (commits) {
          const partitions = [{ partition: 0, offset: String(place + 1) }];
          await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] });
          await transaction.commit();
        } else {
          await transaction.abort();
        }
      }
    });
    const found = textOf(await read(topic, 20, { readUncommitted: false }));
    assert.deepEqual(found, [...valuesOf(10), ...valuesOf(10, 20)]);
    const offsets = await withAdmin((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] }));
    assert.equal(offsets[0].partitions[0].offset, "3");
  },

  async admin() {
    const topic = await newTopic(2);
    const group = fresh("group");
    await withProducer({}, (producer) => producer.send({ topic, messages: messagesOf(valuesOf(RECORDS)) }));
    await withAdmin(async (admin) => {
      assert.ok((await admin.listTopics()).includes(topic));
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      assert.equal(topics[0].partitions.length, 2);
      const ends = await admin.fetchTopicOffsets(topic);
      assert.equal(ends.find((end) => end.partition === 0).offset, String(RECORDS));
      const atTime = await admin.fetchTopicOffsetsByTimestamp(topic, FIRST_MS + 10_500);
      assert.equal(atTime.find((end) => end.partition === 0).offset, "11");
      await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: "5" }] });
      const { groups } = await admin.describeGroups([group]);
      assert.equal(groups[0].state, "Empty");
      assert.ok((await admin.listGroups()).groups.some((each) => each.groupId === group));
      await admin.deleteGroups([group]);
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "25" }] });
      const after = await admin.fetchTopicOffsets(topic);
      assert.equal(after.find((end) => end.partition === 0).low, "25");
      assert.ok((await admin.describeCluster()).brokers.length > 0);
      await admin.deleteTopics({ topics: [topic] });
    });
  },
};

await scenarios[scenario]();
process.exit(0);
