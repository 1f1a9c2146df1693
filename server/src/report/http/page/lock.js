// One lock: its holders, its queue, its past, and the button that takes it away.

import { forgetHistory } from './history.js';
import { Refusal, get, post } from './server.js';
import { Table, text, twofold } from './table.js';
import {
  byId,
  count,
  duration,
  holderName,
  keyParameter,
  leaseLeft,
  make,
  say,
  setFacts,
  setText,
} from './text.js';

const dialog = byId('lock');
const confirmation = byId('confirm');
let shown = null;

const holders = new Table(
  byId('lock-holders'),
  [
    twofold(holderName, (holder) => (holder.client_name ? `session ${holder.session_id}` : '')),
    text((holder) => String(holder.fence), 'number'),
    text((holder) => duration(holder.held_ms), 'number'),
    text(leaseLeft, 'number'),
    text((holder) => holder.metadata, 'key'),
    { fill: forceButton },
  ],
  (holder) => String(holder.fence),
);

function forceButton(cell, holder, row) {
  if (cell.firstChild) return;
  const button = make('button', { type: 'button', class: 'danger' }, 'Take away');
  button.setAttribute('aria-label', `Take away from ${holderName(holder)}, fence ${holder.fence}`);
  button.addEventListener('click', () => takeAway(shown, row.item));
  cell.append(button);
}

/** Opens the lock of a row. */
export function openLock(lock) {
  shown = lock;
  holders.startOver();
  setText(byId('lock-key'), lock.key);
  answer('', '');
  forgetHistory(lock);
  show(lock);
  dialog.showModal();
  refreshLock();
}

function show(lock) {
  const mode =
    lock.holders.length === 0 ? 'free' : lock.holders[0].is_shared ? 'held, shared' : 'held';
  setFacts(byId('lock-facts'), [
    ['State', lock.recovering ? `${mode}; the server recovers and may not know all holders` : mode],
    ['Holders', count(lock.holder_count)],
    ['Waiting', count(lock.queue_length)],
    ['Last fence', lock.last_fence],
    ['Key as bytes', lock.key_hex],
  ]);
  holders.show(lock.holders);
  say(byId('lock-empty'), lock.holders.length === 0 ? 'No session holds it.' : '');
}

/** Brings the open lock up to date; does nothing if none is open. */
export async function refreshLock() {
  if (!dialog.open || !shown) return;
  const asked = shown;
  try {
    const lock = await get(`locks/?key=${keyParameter(asked)}`);
    if (shown === asked) show(lock);
  } catch (refusal) {
    if (shown !== asked) return;
    if (refusal.status === 404) show({ ...asked, holders: [], holder_count: 0, queue_length: 0 });
    else say(byId('lock-empty'), refusal.message);
  }
}

/** Takes a lock away from a holder, if the operator says so twice. */
async function takeAway(lock, holder) {
  setText(
    byId('confirm-text'),
    `${lock.key} is held by ${holderName(holder)} under fence ${holder.fence}, for ${duration(holder.held_ms)} so far.`,
  );
  if (!(await isConfirmed())) return;
  answer('', 'Asking the server …');
  try {
    await post(`force-release?key=${keyParameter(lock)}&fence=${holder.fence}`);
    answer('', `Taken away from ${holderName(holder)}, fence ${holder.fence}.`);
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    const hint =
      refusal.status === 401 || refusal.status === 403
        ? ' The button "Token" takes another token.'
        : '';
    answer('bad', `Not taken away: ${refusal.message}.${hint}`);
  }
  await refreshLock();
}

function answer(kind, text) {
  const place = byId('lock-answer');
  place.className = `notice ${kind}`;
  say(place, text);
}

function isConfirmed() {
  confirmation.returnValue = '';
  confirmation.showModal();
  return new Promise((decide) => {
    confirmation.addEventListener('close', () => decide(confirmation.returnValue === 'yes'), {
      once: true,
    });
  });
}
