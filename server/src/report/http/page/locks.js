// The locks of a prefix, a page at a time. The server may have ten million of them: the page knows
// no more than it shows.

import { Pager } from './pager.js';
import { get } from './server.js';
import { Table, opener, text, twofold } from './table.js';
import { byId, count, duration, holderName, keyOf, leaseLeft, say, setText } from './text.js';
import { openLock } from './lock.js';

const PAGE = 50;

/**
 * A page of the server's may be short and still have a next one, if a prefix is rare in a huge
 * table. So many are asked for to fill one of ours.
 */
const ASKED_MAX = 4;

/** A lease that ends sooner is marked. */
const SOON_MS = 2000;

let prefix = '';
const pager = new Pager('locks');

const first = (lock) => lock.holders[0];
const table = new Table(
  byId('locks-rows'),
  [
    opener((lock) => lock.key, openLock, 'key'),
    twofold(
      (lock) => (lock.holder_count === 0 ? 'none' : holderName(first(lock))),
      (lock) =>
        [
          lock.holder_count > 1 ? `and ${count(lock.holder_count - 1)} more` : '',
          first(lock)?.is_shared ? 'shared' : '',
          first(lock)?.metadata ?? '',
        ]
          .filter(Boolean)
          .join(' · '),
    ),
    text((lock) => String(first(lock)?.fence ?? lock.last_fence), 'number'),
    text((lock) => (first(lock) ? duration(first(lock).held_ms) : ''), 'number'),
    {
      class: 'number',
      fill(cell, lock) {
        const holder = first(lock);
        setText(cell, holder ? leaseLeft(holder) : '');
        cell.classList.toggle(
          'soon',
          Boolean(holder) && holder.remaining_ms !== null && holder.remaining_ms < SOON_MS,
        );
      },
    },
    {
      class: 'number',
      fill(cell, lock) {
        setText(cell, count(lock.queue_length));
        cell.classList.toggle('busy', lock.queue_length > 0);
      },
    },
  ],
  keyOf,
);

/** Shows the page as it is now. */
export async function showLocks() {
  const asked = { prefix, cursor: pager.cursor };
  const locks = [];
  let next = asked.cursor;
  let recovering;
  for (let times = 0; times < ASKED_MAX && next !== null && locks.length < PAGE; times += 1) {
    const limit = PAGE - locks.length;
    const page = await get(
      `locks?prefix=${encodeURIComponent(asked.prefix)}&limit=${limit}&cursor=${next}`,
    );
    locks.push(...page.locks);
    next = page.next;
    recovering = page.recovering;
  }
  // Another page was asked for meanwhile.
  if (asked.prefix !== prefix || asked.cursor !== pager.cursor) return;
  locks.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  const isAsked = table.isNew;
  table.show(locks);
  const more =
    next === null ? '' : locks.length < PAGE ? ', and more of the table to search' : ', and more';
  setText(byId('locks-status'), `${count(locks.length)} shown${more}`);
  const rest = recovering
    ? 'The server recovers and does not know all holders yet: keys that are not listed may be held.'
    : next !== null
      ? 'Nothing in this part of the table. The next page looks further.'
      : asked.prefix
        ? 'No key with this beginning is held or waited for.'
        : 'Nothing is held or waited for.';
  say(byId('locks-empty'), locks.length === 0 ? rest : '');
  pager.show(next);
  if (isAsked) setText(byId('spoken'), locks.length ? byId('locks-status').textContent : rest);
}

/** Wires the search and the pager; `refresh` shows the page at once. */
export function startLocks(refresh) {
  const startOver = () => {
    table.startOver();
    refresh();
  };
  pager.start(startOver);
  byId('search').addEventListener('submit', (event) => {
    event.preventDefault();
    prefix = byId('prefix').value;
    pager.reset();
    startOver();
  });
  document.addEventListener('keydown', (event) => {
    const isTyping =
      event.target instanceof HTMLInputElement || document.querySelector('dialog[open]');
    if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      if (!byId('view-locks').hidden) return focusSearch();
      addEventListener('hashchange', focusSearch, { once: true });
      location.hash = '#locks';
    }
  });
}

function focusSearch() {
  byId('prefix').focus();
  byId('prefix').select();
}
