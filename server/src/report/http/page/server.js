// What the page asks of the server. No cookies: a token travels in a header or not at all, so no
// other site can make the browser send it.

const TOKEN_NAME = 'fencepost-token';

/** Why the server did not answer as was hoped. `status` is 0 if it cannot be reached. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN_NAME) ?? '';
}

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN_NAME, text);
  else sessionStorage.removeItem(TOKEN_NAME);
}

/** Longer than any answer takes; a server that is stuck must not hold the page up for ever. */
const ANSWER_MS_MAX = 10_000;

async function ask(method, path, headers) {
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let response;
  let text;
  try {
    response = await fetch(`../${path}`, {
      method,
      headers,
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    });
    text = await response.text();
  } catch {
    throw new Refusal(0, 'the server cannot be reached');
  }
  let answer;
  try {
    answer = JSON.parse(text, exact);
  } catch {
    answer = { error: `the server answered ${response.status} without JSON` };
  }
  if (!response.ok)
    throw new Refusal(response.status, answer.error ?? `the server answered ${response.status}`);
  return answer;
}

/** Numbers beyond 2^53 stay the text they were: a fence must not be rounded. */
function exact(_name, value, context) {
  const isRounded =
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context?.source ? context.source : value;
}

export function get(path) {
  return ask('GET', path, {});
}

/** The header makes it a request that no form and no other site's script can send. */
export function post(path) {
  return ask('POST', path, { 'X-Fencepost-Operator': '1' });
}
