// How each library spells the same things: `take` gives a handle or nothing, `extend` and `release` say whether they did it.
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

// Installed where the scenario runs, not where this file lies.
const require = createRequire(`${process.cwd()}/`);
const host = process.env.REDIS_HOST;
const port = Number(process.env.REDIS_PORT);

// What people write who use a driver and no library.
const RELEASE = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
  else
    return 0
  end`;
const EXTEND = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
  else
    return 0
  end`;

/** Whether `work` went through; a library's refusal is an answer, anything else a failure. */
async function done(work, isRefusal) {
  try {
    await work();
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  }
}

export function connect(db) {
  const { default: Redis } = require('ioredis');
  return new Redis({ host, port, db });
}

function ioredis(db) {
  const client = connect(db);
  return {
    key: (name) => name,
    take: async (name, ttlMs) => {
      const handle = { name, owner: randomUUID() };
      return (await client.set(name, handle.owner, 'PX', ttlMs, 'NX')) === 'OK' ? handle : null;
    },
    extend: async ({ name, owner }, ttlMs) => (await client.eval(EXTEND, 1, name, owner, ttlMs)) === 1,
    release: async ({ name, owner }) => (await client.eval(RELEASE, 1, name, owner)) === 1,
    close: () => client.quit(),
  };
}

async function nodeRedis(db) {
  const client = require('redis').createClient({ socket: { host, port }, database: db });
  await client.connect();
  const evaluate = (script, name, ...rest) => client.eval(script, { keys: [name], arguments: rest.map(String) });
  return {
    key: (name) => name,
    take: async (name, ttlMs) => {
      const handle = { name, owner: randomUUID() };
      const options = { condition: 'NX', expiration: { type: 'PX', value: ttlMs } };
      return (await client.set(name, handle.owner, options)) === 'OK' ? handle : null;
    },
    extend: async ({ name, owner }, ttlMs) => (await evaluate(EXTEND, name, owner, ttlMs)) === 1,
    release: async ({ name, owner }) => (await evaluate(RELEASE, name, owner)) === 1,
    close: () => client.close(),
  };
}

function sesamecare(db) {
  const { Redlock, ExecutionError, ResourceLockedError } = require('@sesamecare-oss/redlock');
  // The connection stays at database 0: the library selects the one it was given inside its scripts.
  const client = connect(0);
  const redlock = new Redlock([client], { retryCount: 0, db });
  const isRefusal = (error) => error instanceof ExecutionError || error instanceof ResourceLockedError;
  return {
    key: (name) => name,
    take: async (name, ttlMs) => {
      let lock = null;
      await done(async () => { lock = await redlock.acquire([name], ttlMs); }, isRefusal);
      return lock;
    },
    // Its own clock refuses first, which would leave the server unasked.
    extend: (lock, ttlMs) => {
      lock.expiration = Number.MAX_SAFE_INTEGER;
      return done(() => redlock.extend(lock, ttlMs), isRefusal);
    },
    release: (lock) => done(() => redlock.release(lock), isRefusal),
    close: () => client.quit(),
  };
}

function redisSemaphore(db) {
  const { Mutex } = require('redis-semaphore');
  const client = connect(db);
  const value = (name) => client.get(`mutex:${name}`);
  return {
    key: (name) => `mutex:${name}`,
    take: async (name, ttlMs) => {
      const mutex = new Mutex(client, name, { lockTimeout: ttlMs, acquireAttemptsLimit: 1, refreshInterval: 0 });
      return (await mutex.tryAcquire()) ? { mutex, name } : null;
    },
    // It extends by itself, at intervals, to the time it was made with.
    extend: null,
    // It does not tell whether it did: what is at the key tells.
    release: async ({ mutex, name }) => {
      const mine = (await value(name)) === mutex.identifier;
      await mutex.release();
      return mine && (await value(name)) !== mutex.identifier;
    },
    more: async (check, until) => {
      const mutex = new Mutex(client, 'refreshed', { lockTimeout: 20_000, refreshInterval: 20 });
      await mutex.acquire();
      await client.pexpire('mutex:refreshed', 10_000);
      await until(async () => (await client.pttl('mutex:refreshed')) > 10_000);
      check('it is refreshed while it is held', mutex.isAcquired);
      await mutex.release();
      check('and free afterwards', (await value('refreshed')) === null);
    },
    close: () => client.quit(),
  };
}

export const LIBRARIES = {
  ioredis,
  'node-redis': nodeRedis,
  '@sesamecare-oss/redlock': sesamecare,
  'redis-semaphore': redisSemaphore,
};
