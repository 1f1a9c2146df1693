// What the server counts, as small charts of the last two minutes. The server sends totals; the
// page draws what changed from one answer to the next.

import { byId, count, fineDuration, make, setText, short } from './text.js';

/** How many answers are remembered. */
const SAMPLES_MAX = 120;

/** Percentiles in words are of the last so many answers: those of one second jump about. */
const RECENT = 10;

const CHART = { width: SAMPLES_MAX - 1, height: 30 };

const samples = [];

const TILES = [
  {
    title: 'Locks held',
    value: ({ numbers }) => numbers.held,
    say: count,
    more: ({ numbers }) => `${short(numbers.keys)} keys`,
  },
  {
    title: 'Waiting',
    value: ({ numbers }) => numbers.waiters,
    say: count,
    more: ({ numbers }) => `${short(numbers.sessions)} open sessions`,
  },
  {
    title: 'Grants / s',
    rate: 'acquire_grants_total',
    more: (now, before) => `${short(perSecond('acquire_refusals_total', now, before))} refused`,
  },
  { title: 'Expiry lag', histogram: ['expiry_lag'] },
  { title: 'Hand-off', histogram: ['hand_off'] },
  { title: 'Commit', histogram: ['cluster_commit', 'log_sync'], titles: { log_sync: 'Disk sync' } },
];

function perSecond(name, now, before) {
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, now.numbers[name] - before.numbers[name]) / seconds : 0;
}

/**
 * The bound that this share of the durations between two answers lies below; null if there were
 * none.
 */
function percentile(name, share, now, before) {
  const [later, earlier] = [now.histograms[name], before.histograms[name]];
  if (!later || !earlier) return null;
  const counts = later.counts.map((number, bucket) => Math.max(0, number - earlier.counts[bucket]));
  const all = counts.reduce((sum, number) => sum + number, 0);
  if (all === 0) return null;
  let below = 0;
  const bucket = counts.findIndex((number) => (below += number) >= all * share);
  return later.bounds_seconds[bucket] ?? later.bounds_seconds[bucket - 1];
}

class Tile {
  constructor(plan) {
    this.plan = plan;
    this.title = make('h3', {}, plan.title);
    this.value = make('p', {}, '–');
    this.more = make('span');
    this.chart = svg('svg', {
      viewBox: `0 0 ${CHART.width} ${CHART.height + 2}`,
      preserveAspectRatio: 'none',
      role: 'img',
    });
    this.area = svg('path', { class: 'area' });
    this.second = svg('path', { class: 'curve second' });
    this.curve = svg('path', { class: 'curve' });
    const base = svg('path', { class: 'base', d: `M0 ${CHART.height + 1}H${CHART.width}` });
    this.chart.append(base, this.area, this.second, this.curve);
    this.element = make(
      'div',
      { class: 'tile' },
      make('div', {}, this.title, this.more),
      this.value,
      this.chart,
    );
  }

  show() {
    const now = samples.at(-1);
    const before = samples.at(-1 - RECENT) ?? samples[0];
    if (this.plan.histogram) return this.showPercentiles(now, before);
    const { rate, value, more } = this.plan;
    const values = rate
      ? samples.map((sample, index) => (index ? perSecond(rate, sample, samples[index - 1]) : null))
      : samples.map(value);
    const say = this.plan.say ?? short;
    setText(this.value, say(values.at(-1) ?? 0));
    setText(this.more, more(now, samples.at(-2) ?? now));
    this.draw(values, [], say);
  }

  showPercentiles(now, before) {
    const name = this.plan.histogram.find((name) => name in now.histograms);
    this.element.hidden = !name;
    if (!name) return;
    setText(this.title, `${this.plan.titles?.[name] ?? this.plan.title}, p99`);
    const [p50, p99] = [0.5, 0.99].map((share) => percentile(name, share, now, before));
    setText(this.value, p99 === null ? 'none' : `< ${fineDuration(p99)}`);
    setText(this.more, p99 === null ? 'in the last seconds' : `p50 < ${fineDuration(p50)}`);
    const curve = (share) =>
      samples.map((sample, index) =>
        index ? percentile(name, share, sample, samples[index - 1]) : null,
      );
    this.draw(curve(0.99), curve(0.5), fineDuration);
  }

  draw(values, second, say) {
    const known = [...values, ...second].filter((value) => value !== null);
    const top = Math.max(...known, Number.MIN_VALUE);
    const left = SAMPLES_MAX - values.length;
    const at = (value, index) =>
      `${left + index} ${(CHART.height + 1 - (value / top) * CHART.height).toFixed(2)}`;
    this.curve.setAttribute('d', path(values, at));
    this.second.setAttribute('d', path(second, at));
    this.area.setAttribute('d', second.length ? '' : areaOf(values, at, left));
    const highest = known.length
      ? `highest ${say(top === Number.MIN_VALUE ? 0 : top)}`
      : 'nothing yet';
    this.chart.setAttribute(
      'aria-label',
      `${this.title.textContent}, last two minutes: ${highest}`,
    );
  }
}

/** A curve with gaps where nothing is known; a value between two gaps is a short dash. */
function path(values, at) {
  let text = '';
  let isDrawing = false;
  values.forEach((value, index) => {
    if (value !== null) text += isDrawing ? `L${at(value, index)}` : `M${at(value, index)}h.6`;
    isDrawing = value !== null;
  });
  return text;
}

function areaOf(values, at, left) {
  const points = values.map((value, index) => [value, index]).filter(([value]) => value !== null);
  if (points.length < 2) return '';
  const floor = CHART.height + 1;
  const line = points.map(([value, index]) => at(value, index)).join('L');
  return `M${left + points[0][1]} ${floor}L${line}L${left + points.at(-1)[1]} ${floor}Z`;
}

function svg(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [attribute, value] of Object.entries(attributes))
    element.setAttribute(attribute, value);
  return element;
}

const tiles = TILES.map((plan) => new Tile(plan));
byId('numbers').append(...tiles.map((tile) => tile.element));

/** Takes note of an answer and draws it. */
export function showNumbers({ numbers, histograms }) {
  const last = samples.at(-1);
  // Another server answers: its totals begin anew.
  if (last && numbers.uptime_ms < last.numbers.uptime_ms) samples.length = 0;
  samples.push({ at: performance.now(), numbers, histograms });
  if (samples.length > SAMPLES_MAX) samples.shift();
  for (const tile of tiles) tile.show();
}
