// redlock 5 on one server. Its package comes without tests; these ask what its users rely on.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

// Installed where the suite runs, not where this file lies.
const require = createRequire(`${process.cwd()}/`);
const { default: Redlock, ExecutionError, ResourceLockedError } = require('redlock');
const { default: Redis } = require('ioredis');

// Longer than any lease of ours, which a server must take all the same: some users want a lock for good.
const FOR_GOOD_MS = Math.floor(Number.MAX_SAFE_INTEGER / 10);
const RETRIES = 2;

let redis;
let redlock;

before(() => {
  redis = new Redis({ host: process.env.REDIS_HOST, port: Number(process.env.REDIS_PORT) });
  redlock = new Redlock([redis], { retryCount: RETRIES, retryDelay: 20, retryJitter: 10 });
});
after(() => redis.quit());
beforeEach(async () => {
  const keys = await redis.keys('*');
  if (keys.length > 0) await redis.del(keys);
});

async function assertHeld(lock, durationMs) {
  for (const resource of lock.resources) {
    assert.equal(await redis.get(resource), lock.value);
    const leftMs = await redis.pttl(resource);
    assert.ok(0 < leftMs && leftMs <= durationMs, `${resource} has ${leftMs} of ${durationMs} ms left`);
  }
}

async function assertFree(...resources) {
  for (const resource of resources) assert.equal(await redis.get(resource), null);
}

async function assertLocked(attempt) {
  const error = await attempt.then(() => assert.fail('it was granted'), (error) => error);
  assert.ok(error instanceof ExecutionError, String(error));
  assert.equal(error.attempts.length, 1 + RETRIES);
  for (const { votesFor, votesAgainst } of await Promise.all(error.attempts)) {
    assert.equal(votesFor.size, 0);
    for (const reason of votesAgainst.values()) {
      assert.ok(reason instanceof ResourceLockedError, String(reason));
    }
  }
}

for (const resources of [['{r}a'], ['{r}a', '{r}b', '{r}c'], ['one', 'two']]) {
  test(`${resources.length} of ${resources[0]}: acquired, extended, released`, async () => {
    let lock = await redlock.acquire(resources, 30_000);
    await assertHeld(lock, 30_000);
    lock = await lock.extend(90_000);
    await assertHeld(lock, 90_000);
    assert.ok(await redis.pttl(resources[0]) > 30_000);
    await lock.release();
    await assertFree(...resources);
  });
}

test('a lease may be as long as a client can count', async () => {
  let lock = await redlock.acquire(['long'], FOR_GOOD_MS);
  await assertHeld(lock, FOR_GOOD_MS);
  lock = await lock.extend(3 * FOR_GOOD_MS);
  await assertHeld(lock, 3 * FOR_GOOD_MS);
  assert.ok(await redis.pttl('long') > FOR_GOOD_MS);
  await lock.release();
  await assertFree('long');
});

test('one holder at a time', async () => {
  const lock = await redlock.acquire(['once'], 30_000);
  await assertLocked(redlock.acquire(['once'], 30_000));
  await assertHeld(lock, 30_000);
  await lock.release();
  await (await redlock.acquire(['once'], 30_000)).release();
});

test('of overlapping locks the second takes nothing', async () => {
  const lock = await redlock.acquire(['{o}1', '{o}2'], 30_000);
  await assertLocked(redlock.acquire(['{o}2', '{o}3'], 30_000));
  await assertLocked(redlock.acquire(['{o}0', '{o}1'], 30_000));
  await assertHeld(lock, 30_000);
  await assertFree('{o}0', '{o}3');
});

test('a lock that nobody releases ends by itself, and is no longer its owner\'s', async () => {
  const lost = await redlock.acquire(['short'], 150);
  let next;
  while (next === undefined) {
    next = await redlock.acquire(['short'], 30_000).catch(() => undefined);
  }
  assert.notEqual(next.value, lost.value);
  await assert.rejects(lost.release());
  await assert.rejects(redlock.extend({ ...lost, expiration: Number.MAX_SAFE_INTEGER }, 60_000));
  await assertHeld(next, 30_000);
});

test('of several keys those that are still owned are released', async () => {
  const lock = await redlock.acquire(['{p}1', '{p}2'], 30_000);
  await redis.set('{p}2', 'somebody else');
  await assert.rejects(redlock.extend(lock, 60_000));
  await assert.rejects(lock.release());
  await assertFree('{p}1');
  assert.equal(await redis.get('{p}2'), 'somebody else');
});

test('a key of another type is an error, not a lock', async () => {
  await redis.lpush('list', 'x');
  await assert.rejects(redlock.acquire(['list'], 30_000), ExecutionError);
  assert.equal(await redis.type('list'), 'list');
});

test('scripts that the server forgot are sent again', async () => {
  const lock = await redlock.acquire(['forgot'], 30_000);
  await redis.script('FLUSH');
  await lock.extend(60_000);
  await redis.script('FLUSH');
  await lock.release();
  await assertFree('forgot');
});

test('using extends the lock for as long as the routine runs', async () => {
  const settings = { automaticExtensionThreshold: 1_800 };
  await redlock.using(['used'], 2_000, settings, async (signal) => {
    const value = await redis.get('used');
    assert.equal(typeof value, 'string');
    // The time left only ever falls, but for an extension.
    let leftMs = await redis.pttl('used');
    for (;;) {
      await sleep(20);
      const nowMs = await redis.pttl('used');
      if (nowMs > leftMs) break;
      leftMs = nowMs;
    }
    assert.equal(signal.aborted, false);
    assert.equal(await redis.get('used'), value);
  });
  await assertFree('used');
});

test('using lets one routine in at a time', async () => {
  let inside = 0;
  const patient = { retryCount: -1, retryDelay: 10, retryJitter: 5, automaticExtensionThreshold: 500 };
  const values = await Promise.all(
    Array.from({ length: 4 }, () =>
      redlock.using(['shared'], 10_000, patient, async (signal) => {
        assert.equal((inside += 1), 1);
        const value = await redis.get('shared');
        await sleep(20);
        assert.equal(await redis.get('shared'), value);
        assert.equal(signal.aborted, false);
        inside -= 1;
        return value;
      }),
    ),
  );
  assert.equal(new Set(values).size, values.length);
  await assertFree('shared');
});
