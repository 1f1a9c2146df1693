// How the server stands: recovery, and the cluster if it is a node of one.

import { get } from './server.js';
import { Table, text } from './table.js';
import { byId, count, duration, setFacts } from './text.js';

const members = new Table(
  byId('members-rows'),
  [
    text(({ node, isThis }) => `${node}${isThis ? ' (this one)' : ''}`),
    text(({ role }) => role),
    text(({ peer }) => peer, 'key'),
    text(({ client }) => client, 'key'),
    text(({ behind }) => behind, 'number'),
  ],
  ({ node }) => String(node),
);

const MODES = {
  none: 'none: locks and fences live in memory',
  fence: 'fence: every fence, and long leases',
  lease: 'lease: everything that was acknowledged',
};

export async function showCluster(stats) {
  const { numbers, readiness } = stats;
  setFacts(byId('server-facts'), [
    ['Version', stats.version],
    ['Started', `${stats.started}, ${duration(numbers.uptime_ms)} ago`],
    ['I/O threads', stats.core_count],
    ['Survives a crash', MODES[stats.durability] ?? stats.durability],
    ['Connections', count(numbers.connections)],
    ['Requests so far', count(numbers.requests_total)],
  ]);
  const isRecovering = readiness.reason === 'recovering';
  setFacts(byId('recovery-facts'), [
    ['Clients may connect', readiness.ready ? 'yes' : `no: ${readiness.reason}`],
    ['New locks are granted', readiness.granting ? 'yes' : `no: ${readiness.reason}`],
    [
      'Grace period',
      isRecovering ? `until ${readiness.until}, ${duration(readiness.remaining_ms)} left` : 'none',
    ],
    ['A crash now would cost', seconds(numbers.crash_grace_seconds)],
    ['Leases written down one by one', optional(numbers.long_leases)],
    ['Lost to expiry so far', count(numbers.lost_expired_total)],
  ]);
  setFacts(
    byId('counters'),
    Object.entries(numbers).map(([name, value]) => [name, count(value)]),
  );
  byId('node').hidden = !stats.is_node;
  byId('members').hidden = !stats.is_node;
  if (stats.is_node) showNode(await get('cluster'));
}

function showNode(node) {
  setFacts(byId('node-facts'), [
    ['Node', node.node],
    ['Role', node.role],
    ['Leader', node.leader ?? 'not known'],
    ['Term', count(node.term)],
    ['Cluster', node.cluster],
    ['Entries applied', `${count(node.applied_index)} of ${count(node.last_index)}`],
    ['Keys in the ledger', count(node.keys)],
  ]);
  members.show(
    node.members.map((member) => ({
      ...member,
      isThis: member.node === node.node,
      role: member.node === node.leader ? 'leader' : member.votes ? 'follower' : 'learner',
      behind: behind(member, node),
    })),
  );
}

/** Only the leader knows how far the others are. */
function behind(member, node) {
  if (member.node === node.node) return count(Math.max(0, node.last_index - node.applied_index));
  return typeof member.matched_index === 'number'
    ? count(Math.max(0, node.last_index - member.matched_index))
    : '';
}

function seconds(number) {
  return number === undefined
    ? undefined
    : number === 0
      ? 'no grace period'
      : `a grace period of ${duration(number * 1000)}`;
}

function optional(number) {
  return number === undefined ? undefined : count(number);
}
