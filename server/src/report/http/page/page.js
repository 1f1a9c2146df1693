// The page: which view is shown, and when it is brought up to date.

import { get, setToken, token } from './server.js';
import { byId, duration, say, setText } from './text.js';
import { showCluster } from './cluster.js';
import { showContended } from './contended.js';
import { refreshLock } from './lock.js';
import { showLocks, startLocks } from './locks.js';
import { showNumbers } from './numbers.js';
import { showSessions, startSessions } from './sessions.js';

/** Each view's section is called `view-` and its name. */
const VIEWS = {
  locks: showLocks,
  contended: showContended,
  sessions: showSessions,
  cluster: showCluster,
};

/** How often a view is brought up to date. */
const PERIOD_MS = 1000;

/**
 * A view that takes long to answer is asked for seldom: the server spends at most so small a share
 * of a core on it.
 */
const SHARE = 20;

let view = 'locks';
let isPaused = false;
let isUnderWay = false;
let isAskedAgain = false;
/** The server wants a token, and has not been shown one since. */
let isLockedOut = false;
let timer = 0;
/** When the view may be asked for again by itself. */
let viewDue = 0;

/** Brings all that is shown up to date, and does so again after a while. */
async function refresh() {
  clearTimeout(timer);
  if (isUnderWay) {
    isAskedAgain = true;
    return;
  }
  isUnderWay = true;
  try {
    const stats = await get('stats');
    showState(stats);
    showNumbers(stats);
    if (performance.now() >= viewDue) {
      const start = performance.now();
      await VIEWS[view](stats);
      const end = performance.now();
      viewDue = end + Math.min((end - start) * SHARE, 60_000) - PERIOD_MS;
    }
    await refreshLock();
    complain('');
  } catch (refusal) {
    complain(`${sentence(refusal.message)} What is shown may be old.`);
    isLockedOut = refusal.status === 401;
    if (isLockedOut) askToken();
    else showState(null);
  }
  isUnderWay = false;
  if (isAskedAgain) {
    isAskedAgain = false;
    refresh();
  } else if (!isPaused && !isLockedOut && !document.hidden) {
    timer = setTimeout(refresh, PERIOD_MS);
  }
}

/** The same, at once: a person asked. */
function refreshNow() {
  viewDue = 0;
  isLockedOut = false;
  refresh();
}

function showState(stats) {
  const [word, kind] = stats ? stateOf(stats.readiness) : ['unreachable', 'bad'];
  const badge = byId('state');
  setText(badge, word);
  badge.className = `badge ${kind}`;
  if (!stats) return;
  const left = stats.readiness.remaining_ms;
  const until = left === undefined ? '' : `, grants new locks in ${duration(left)}`;
  const up = duration(stats.numbers.uptime_ms);
  setText(byId('about'), `version ${stats.version}, up ${up}${until}`);
}

function stateOf({ granting, reason }) {
  if (granting) return ['granting locks', 'good'];
  if (reason === 'recovering') return ['recovering', 'warn'];
  return [reason ?? 'not granting', reason === 'following' ? '' : 'warn'];
}

function complain(text) {
  const notice = byId('notice');
  notice.classList.add('bad');
  say(notice, text);
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith('.') ? '' : '.');
}

/** Shows the view that the address names. */
function route() {
  const name = location.hash.slice(1);
  if (name in VIEWS) view = name;
  for (const link of document.querySelectorAll('header nav a')) {
    const isCurrent = link.hash === `#${view}`;
    if (isCurrent) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  for (const name of Object.keys(VIEWS)) byId(`view-${name}`).hidden = name !== view;
  refreshNow();
}

function askToken() {
  const dialog = byId('token');
  if (dialog.open) return;
  byId('token-text').value = '';
  dialog.returnValue = '';
  dialog.showModal();
}

byId('token-change').addEventListener('click', askToken);
// The key Enter means the last button, not the first.
byId('token-text').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  event.preventDefault();
  byId('token').close('use');
});
byId('token').addEventListener('close', () => {
  const { returnValue } = byId('token');
  if (returnValue === 'use') setToken(byId('token-text').value.trim());
  if (returnValue === 'forget') setToken('');
  byId('token-text').value = '';
  if (returnValue === 'use' || returnValue === 'forget') refreshNow();
  setText(byId('token-change'), token() ? 'Token set' : 'Token');
});

byId('pause').addEventListener('click', () => {
  isPaused = !isPaused;
  byId('pause').setAttribute('aria-pressed', String(isPaused));
  setText(byId('pause'), isPaused ? 'Paused' : 'Pause');
  if (!isPaused) refreshNow();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !isPaused) refreshNow();
});

addEventListener('hashchange', route);
setText(byId('token-change'), token() ? 'Token set' : 'Token');
startLocks(refreshNow);
startSessions(refreshNow);
route();
