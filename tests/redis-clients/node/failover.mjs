// One driver for failover.py: failover.mjs DRIVER PORT... A line of JSON asks for something, a line answers.
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import path from "node:path";

// Packages are installed where this is called from, and not beside this file.
const require = createRequire(path.join(process.cwd(), "here"));
const [driver, ...ports] = process.argv.slice(2);
const addresses = ports.map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const answerMs = 1_000;

const drivers = {
  async "ioredis-sentinel"() {
    const { Redis } = require("ioredis");
    // A leader that is paused keeps its connections: without this bound the driver would wait for it.
    const socketTimeout = answerMs;
    return new Redis({ sentinels: addresses, name: "mymaster", sentinelCommandTimeout: answerMs, socketTimeout });
  },
  async "ioredis-cluster"() {
    const { Cluster } = require("ioredis");
    return new Cluster(addresses, { redisOptions: { commandTimeout: answerMs }, slotsRefreshInterval: 1_000 });
  },
  async "node-redis-sentinel"() {
    const { createSentinel } = require("redis");
    const options = { commandOptions: { timeout: answerMs }, socket: { connectTimeout: answerMs } };
    const clients = { nodeClientOptions: options, sentinelClientOptions: options, scanInterval: 1_000 };
    return createSentinel({ name: "mymaster", sentinelRootNodes: addresses, ...clients })
      .on("error", () => {})
      .connect();
  },
  async "node-redis-cluster"() {
    const { createCluster } = require("redis");
    const rootNodes = addresses.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
    const defaults = { commandOptions: { timeout: answerMs }, socket: { connectTimeout: answerMs } };
    return createCluster({ rootNodes, defaults }).on("error", () => {}).connect();
  },
};

const client = await drivers[driver]();
if (driver.startsWith("ioredis")) client.on("error", () => {});
const set = driver.startsWith("ioredis")
  ? (key, token, ttlMs) => client.set(key, token, "PX", ttlMs, "NX")
  : (key, token, ttlMs) => client.set(key, token, { PX: ttlMs, NX: true });
const release = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';
const give = driver.startsWith("ioredis")
  ? (key, token) => client.eval(release, 1, key, token)
  : (key, token) => client.eval(release, { keys: [key], arguments: [token] });

const tokens = new Map();

async function carryOut(request) {
  if (request.take) {
    const token = randomUUID();
    const isGranted = (await set(request.take, token, request.ttl_ms)) === "OK";
    // A driver that lost the answer may ask again by itself, and is refused by the lock that it has.
    const repeated = !isGranted && (await client.get(request.take)) === token;
    if (isGranted || repeated) tokens.set(request.take, token);
    return { ok: isGranted || repeated, repeated };
  }
  if (request.take_other) return { ok: (await set(request.take_other, randomUUID(), request.ttl_ms)) === "OK" };
  if (request.is_held) return { ok: (await client.get(request.is_held)) === tokens.get(request.is_held) };
  return { ok: (await give(request.release, tokens.get(request.release))) === 1 };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await carryOut(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
