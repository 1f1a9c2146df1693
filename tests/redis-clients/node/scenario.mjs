// One story of a lock, told through one library after the other: scenario.mjs LIBRARY. The same as in scenario.py.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, LIBRARIES } from './libraries.mjs';

const DB = 9;
const LONG_MS = 20_000;
const LONGER_MS = 60_000;
const SHORT_MS = 150;

let count = 0;

function check(claim, holds) {
  if (!holds) throw new Error(`not so: ${claim}`);
  console.log('so it is:', claim);
  count += 1;
}

/** Waits for what happens by itself; whoever started this bounds the whole. */
async function until(attempt) {
  for (;;) {
    const result = await attempt();
    if (result) return result;
    await sleep(20);
  }
}

async function story(library, server) {
  const key = library.key('orders');
  const heldFor = async (ttlMs) => {
    const leftMs = await server.pttl(key);
    return 0 < leftMs && leftMs <= ttlMs;
  };

  const first = await library.take('orders', LONG_MS);
  check('a free lock is granted', first);
  const value = await server.get(key);
  check('it is held on the server, for as long as asked', await heldFor(LONG_MS));

  check('nobody else gets it', !(await library.take('orders', LONG_MS)));
  check('and trying changes nothing', (await server.get(key)) === value && (await heldFor(LONG_MS)));

  if (library.extend) {
    check('its owner may keep it longer', await library.extend(first, LONGER_MS));
    check('for as long as asked', (await heldFor(LONGER_MS)) && !(await heldFor(LONG_MS)));
    check('under the same value', (await server.get(key)) === value);
  }

  const next = until(() => library.take('orders', LONG_MS));
  check('its owner may release it', await library.release(first));
  await next;
  check('then somebody else gets it', ![null, value].includes(await server.get(key)));

  const short = library.key('short');
  const lost = await library.take('short', SHORT_MS);
  check('a lock with a short life is granted', lost);
  await until(async () => (await server.exists(short)) === 0);
  const heir = await library.take('short', LONG_MS);
  check('it ends by itself, and another owner gets it', heir);
  const heirs = await server.get(short);
  check('who held it before cannot release it', !(await library.release(lost)));
  if (library.extend) check('nor extend it', !(await library.extend(lost, LONGER_MS)));
  check('and trying changes nothing for its owner', (await server.get(short)) === heirs);
  check('who may release it', await library.release(heir));
  check('and then it is free', (await server.exists(short)) === 0);

  await library.more?.(check, until);
}

const server = connect(DB);
await server.flushdb();
const library = await LIBRARIES[process.argv[2]](DB);
await story(library, server);
await library.close();
await server.flushdb();
await server.quit();
console.log(count, 'passed');
