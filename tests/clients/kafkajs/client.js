// One action of a kafkajs client: node client.js ADDRESS ACTION ARGUMENTS, the last in JSON.
// Prints what came of it in JSON; an error's type stands for its answer.
"use strict";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const [address, action, text] = process.argv.slice(2);
const given = JSON.parse(text);
const kafka = new Kafka({ brokers: [address], clientId: "kafkajs", logLevel: logLevel.NOTHING, retry: { retries: 2 } });

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const topicConfigs = (admin, topic) =>
  admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });

const actions = {
  create: ({ topic, partitions, configs }) =>
    withAdmin((admin) =>
      admin.createTopics({
        topics: [
          {
            topic,
            numPartitions: partitions,
            replicationFactor: 1,
            configEntries: Object.entries(configs || {}).map(([name, value]) => ({ name, value })),
          },
        ],
      })
    ),
  produce: async ({ topic, values, acks, gzip, idempotent }) => {
    const producer = kafka.producer({ idempotent: Boolean(idempotent), allowAutoTopicCreation: false });
    await producer.connect();
    try {
      const messages = values.map((value, number) => ({ value, partition: 0, timestamp: String(1000000 + number) }));
      const compression = gzip ? CompressionTypes.GZIP : CompressionTypes.None;
      const told = await producer.send({ topic, acks, compression, messages });
      return told.map((entry) => entry.baseOffset);
    } finally {
      await producer.disconnect();
    }
  },
  offsets: ({ topic }) => withAdmin((admin) => admin.fetchTopicOffsets(topic)),
  offsetsAt: ({ topic, timestamp }) => withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp)),
  // Reads `count` records as the only member of a group: from the beginning, the end, or where it is told to.
  consume: async ({ topic, group, count, from, offset }) => {
    const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 100 });
    await consumer.connect();
    try {
      await consumer.subscribe({ topics: [topic], fromBeginning: from === "beginning" });
      return await new Promise((resolve, reject) => {
        const found = [];
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
        const eachMessage = async ({ message }) => {
          if (found.length < count) found.push([Number(message.offset), message.value.toString()]);
          if (found.length === count) resolve(found);
        };
        consumer.run({ eachMessage }).catch(reject);
        if (offset !== undefined) consumer.seek({ topic, partition: 0, offset });
      });
    } finally {
      await consumer.disconnect();
    }
  },
  groups: () => withAdmin((admin) => admin.listGroups()),
  describeGroup: ({ group }) => withAdmin((admin) => admin.describeGroups([group])),
  groupOffsets: ({ group, topic }) => withAdmin((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] })),
  setGroupOffset: ({ group, topic, offset }) =>
    withAdmin((admin) => admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset }] })),
  deleteGroup: ({ group }) => withAdmin((admin) => admin.deleteGroups([group])),
  alter: ({ topic, name, value }) =>
    withAdmin(async (admin) => {
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }];
      await admin.alterConfigs({ validateOnly: false, resources });
      return (await topicConfigs(admin, topic)).resources[0].configEntries;
    }),
  addPartitions: ({ topic, count }) =>
    withAdmin(async (admin) => {
      await admin.createPartitions({ topicPartitions: [{ topic, count }] });
      return (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    }),
  deleteRecords: ({ topic, offset }) =>
    withAdmin(async (admin) => {
      // It looks for the leader in metadata that only another call loads.
      await admin.fetchTopicOffsets(topic);
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset }] });
    }),
  deleteTopic: ({ topic }) =>
    withAdmin(async (admin) => {
      await admin.deleteTopics({ topics: [topic] });
      return await admin.listTopics();
    }),
};

actions[action](given)
  .then((answer) => console.log(JSON.stringify(answer === undefined ? null : answer)))
  .catch((error) => {
    console.error(error.stack || String(error));
    process.exitCode = 1;
  });
