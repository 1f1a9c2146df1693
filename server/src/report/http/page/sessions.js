// The sessions of all clients, a page at a time.

import { Pager } from './pager.js';
import { get } from './server.js';
import { Table, text } from './table.js';
import { byId, count, duration, say, setText } from './text.js';

const PAGE = 50;

let name = '';

const table = new Table(
  byId('sessions-rows'),
  [
    text((session) => session.client_name || '(no name)'),
    text((session) => String(session.session_id), 'key'),
    text((session) => session.address ?? 'not connected', 'key'),
    text((session) => count(session.lock_count), 'number'),
    text((session) => count(session.waiter_count), 'number'),
    text((session) => count(session.connection_count), 'number'),
    text((session) => duration(session.age_ms), 'number'),
    text(
      (session) => (session.remaining_ms === null ? 'never' : duration(session.remaining_ms)),
      'number',
    ),
  ],
  (session) => String(session.session_id),
);

const pager = new Pager('sessions');

export async function showSessions() {
  const { cursor } = pager;
  const asked = name;
  const page = await get(
    `sessions?name=${encodeURIComponent(asked)}&limit=${PAGE}&cursor=${cursor}`,
  );
  if (cursor !== pager.cursor || asked !== name) return;
  table.show(page.sessions);
  pager.show(page.next);
  setText(
    byId('sessions-status'),
    `${count(page.sessions.length)} shown${page.next === null ? '' : ', and more'}`,
  );
  const rest =
    page.next === null
      ? 'There is no such session.'
      : 'None among these. The next page looks further.';
  say(byId('sessions-empty'), page.sessions.length ? '' : rest);
}

export function startSessions(refresh) {
  const startOver = () => {
    table.startOver();
    refresh();
  };
  pager.start(startOver);
  byId('sessions-search').addEventListener('submit', (event) => {
    event.preventDefault();
    name = byId('sessions-name').value;
    pager.reset();
    startOver();
  });
}
