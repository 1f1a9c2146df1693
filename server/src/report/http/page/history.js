// What happened to one key, from the audit log. It is read when it is asked for, not over and over.

import { get } from './server.js';
import { byId, count, duration, keyParameter, make, setText } from './text.js';

const rows = byId('history-rows');
const status = byId('history-status');
const button = byId('history-read');

let shown = null;

/** Another lock is looked at: its past is not shown before it is asked for. */
export function forgetHistory(lock) {
  shown = lock;
  rows.replaceChildren();
  byId('history-table').hidden = true;
  setText(status, '');
}

async function showHistory() {
  const asked = shown;
  setText(status, 'Reading the audit log …');
  try {
    const history = await get(`history?key=${keyParameter(asked)}`);
    if (shown === asked) show(history);
  } catch (refusal) {
    if (shown === asked) setText(status, `${refusal.message}.`);
  }
}

function show(history) {
  if (!history.is_logged) {
    setText(status, 'This server writes no audit log: start it with --audit-log FILE.');
    return;
  }
  const { entries, left_out: leftOut, coverage } = history;
  rows.replaceChildren(...entries.toReversed().map(row));
  byId('history-table').hidden = entries.length === 0;
  const parts = [entries.length ? 'Newest first.' : 'The log says nothing of this key.'];
  if (leftOut) parts.push(`${count(leftOut)} older lines are left out.`);
  if (coverage.first_time) parts.push(`The log reaches back to ${coverage.first_time}.`);
  const missing = coverage.dropped + coverage.missing + coverage.damaged;
  if (missing) parts.push(`${count(missing)} lines are missing or damaged.`);
  setText(status, parts.join(' '));
}

function row(entry) {
  const cell = (text, name) => make('td', name ? { class: name } : {}, text);
  const who =
    entry.client_name || entry.token_name || (entry.session_id && `session ${entry.session_id}`);
  return make(
    'tr',
    {},
    cell(entry.time, 'key'),
    cell(entry.ended && entry.event !== 'release' ? `${entry.event}: ${entry.ended}` : entry.event),
    cell(entry.fence === undefined ? '' : String(entry.fence), 'number'),
    cell([who, entry.address].filter(Boolean).join(', ')),
    cell(details(entry)),
  );
}

function details(entry) {
  return [
    entry.wait_ms && `waited ${duration(entry.wait_ms)}`,
    entry.held_ms !== undefined && `held ${duration(entry.held_ms)}`,
    entry.late_ms && `${duration(entry.late_ms)} late`,
    entry.owner_token && `owner ${entry.owner_token}`,
    entry.trace_id && `trace ${entry.trace_id}`,
    entry.last_stop && `last stop: ${entry.last_stop}`,
  ]
    .filter(Boolean)
    .join(', ');
}

button.addEventListener('click', showHistory);
