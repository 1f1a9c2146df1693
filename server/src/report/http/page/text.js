// Elements and words. Everything that comes from a client goes through textContent, never through
// markup.

/** Makes an element with attributes and children; a string among the children is text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes))
    element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Changes a text only if it is another one: what has not changed is not read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Says a text where it is shown, or hides the place. */
export function say(element, text) {
  element.hidden = !text;
  setText(element, text ?? '');
}

const whole = new Intl.NumberFormat('en');

/** 12,345 */
export function count(number) {
  return whole.format(number);
}

/** 950, 12.3 k, 4.1 M */
export function short(number) {
  for (const [unit, size, from] of [
    ['M', 1e6, 1e6],
    ['k', 1e3, 1e4],
  ]) {
    if (number >= from) return `${(number / size).toFixed(number >= size * 100 ? 0 : 1)} ${unit}`;
  }
  return number >= 100 || Number.isInteger(number) ? count(Math.round(number)) : number.toFixed(1);
}

/** 850 ms, 12.3 s, 4 m 05 s, 3 h 12 m, 2 d 4 h */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  const two = (number) => String(Math.floor(number)).padStart(2, '0');
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two((seconds / 60) % 60)} m`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds / 3600) % 24)} h`;
}

/** Durations below a millisecond too: 40 us, 1.3 ms, and so on as above. */
export function fineDuration(seconds) {
  if (seconds === 0) return '0 ms';
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.1) return `${(seconds * 1000).toFixed(1)} ms`;
  return duration(seconds * 1000);
}

/** The name of a holder, as a table shows it. */
export function holderName(holder) {
  if (holder.session_id === null) return 'just granted';
  return holder.client_name || `session ${holder.session_id}`;
}

/** How long a holder's lease has left. */
export function leaseLeft(holder) {
  if (holder.remaining_ms === null) return 'no end';
  return duration(holder.remaining_ms) + (holder.ends_with_session ? ', with session' : '');
}

/** A key as a query carries it. A key that is not text has its bytes in key_hex. */
export function keyParameter(lock) {
  return lock.key_hex ? lock.key_hex.replace(/../g, '%$&') : encodeURIComponent(lock.key);
}

/** What tells one lock from another: two keys may look the same. */
export function keyOf(lock) {
  return lock.key_hex ? `hex:${lock.key_hex}` : `text:${lock.key}`;
}

/** A list of facts, brought up to date in place. */
export function setFacts(list, facts) {
  const shown = facts.filter(([, value]) => value !== undefined && value !== null);
  while (list.children.length > shown.length * 2) list.lastElementChild.remove();
  shown.forEach(([name, value], index) => {
    if (list.children.length <= index * 2) list.append(make('dt'), make('dd'));
    setText(list.children[index * 2], name);
    setText(list.children[index * 2 + 1], String(value));
  });
}
