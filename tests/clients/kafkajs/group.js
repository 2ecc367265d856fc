// A kafkajs consumer as a member of a group: node group.js SPEC, in JSON.
// Says a line of JSON for each thing that happens to it, until SIGTERM asks it to leave.
"use strict";

const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const spec = JSON.parse(process.argv[2]);
const kafka = new Kafka({
  brokers: [spec.address],
  clientId: spec.name,
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 50 },
});
const consumer = kafka.consumer({
  groupId: spec.group,
  sessionTimeout: spec.session_ms,
  heartbeatInterval: spec.heartbeat_ms,
  rebalanceTimeout: 10000,
  maxWaitTimeInMs: 200,
});

// Written at once, so that a kill takes nothing back.
function say(event, facts) {
  fs.writeSync(1, JSON.stringify({ at: Number(process.hrtime.bigint()), event, ...facts }) + "\n");
}

function partitions(assignment) {
  return Object.entries(assignment).flatMap(([topic, numbers]) => numbers.map((number) => [topic, number]));
}

async function eachBatch({ batch, heartbeat, isRunning, isStale }) {
  const { topic, partition } = batch;
  for (const message of batch.messages) {
    if (!isRunning() || isStale()) return;
    const value = message.value.toString();
    say("processed", { place: [topic, partition], offset: Number(message.offset), value });
    await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }]);
    say("committed", { offsets: [[topic, partition, Number(message.offset) + 1]] });
    await heartbeat();
  }
}

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
  say("assigned", { held: partitions(payload.memberAssignment), protocol: payload.groupProtocol })
);
consumer.on(consumer.events.REBALANCING, () => say("revoked", { held: [] }));
consumer.on(consumer.events.CRASH, ({ payload }) => {
  say(payload.restart ? "trouble" : "fatal", { what: String(payload.error) });
  if (!payload.restart) process.exit(1);
});
process.on("SIGTERM", async () => {
  // It stops what it is doing before it tells the group.
  await consumer.stop();
  say("left", { held: [] });
  await consumer.disconnect();
  process.exit(0);
});

async function main() {
  await consumer.connect();
  const topics = spec.pattern ? [new RegExp(spec.pattern)] : spec.topics;
  await consumer.subscribe({ topics, fromBeginning: true });
  say("started", {});
  await consumer.run({ autoCommit: false, eachBatch });
}

main().catch((error) => {
  say("fatal", { what: String(error) });
  process.exit(1);
});
