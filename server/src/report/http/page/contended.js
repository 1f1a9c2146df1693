// The keys that most acquires wait for, or are refused for.

import { openLock } from './lock.js';
import { get } from './server.js';
import { Table, opener, text } from './table.js';
import { byId, count, duration, holderName, keyOf, say, setText } from './text.js';

const first = (lock) => lock.holders[0];

const table = new Table(
  byId('contended-rows'),
  [
    opener((lock) => lock.key, openLock, 'key'),
    text((lock) => rate(lock), 'number'),
    text((lock) => count(lock.queue_length), 'number'),
    text((lock) => (first(lock) ? holderName(first(lock)) : 'none')),
    text((lock) => (first(lock) ? duration(first(lock).held_ms) : ''), 'number'),
  ],
  keyOf,
);

/** A count that may be another key's for the most part is shown as what it is at most. */
function rate({ per_second: shown, too_high_by: error }) {
  const text = shown >= 100 ? count(Math.round(shown)) : shown.toFixed(1);
  return error > shown / 10 ? `at most ${text}` : text;
}

export async function showContended() {
  const { keys } = await get('contended');
  table.show(keys);
  setText(byId('contended-status'), keys.length ? 'of the last seconds, most contended first' : '');
  say(byId('contended-empty'), keys.length ? '' : 'No acquire had to wait or was refused of late.');
}
