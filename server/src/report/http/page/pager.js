// Pages by cursor. The server knows where the next page begins; where the ones before began is
// remembered here.

import { byId } from './text.js';

/** Cursors that "page before" remembers. */
const BACK_MAX = 1000;

export class Pager {
  /** Its buttons are called `name-first`, `name-back` and `name-next`. */
  constructor(name) {
    [this.first, this.before, this.further] = ['first', 'back', 'next'].map((which) =>
      byId(`${name}-${which}`),
    );
    this.reset();
  }

  reset() {
    this.cursor = '';
    this.next = null;
    this.back = [];
  }

  /** Wires the buttons; `show` shows the page that the cursor now names. */
  start(show) {
    this.first.addEventListener('click', () => {
      this.reset();
      show();
    });
    this.before.addEventListener('click', () => {
      this.cursor = this.back.pop() ?? '';
      show();
    });
    this.further.addEventListener('click', () => {
      if (this.next === null) return;
      this.back = [...this.back, this.cursor].slice(-BACK_MAX);
      this.cursor = this.next;
      show();
    });
  }

  /** A page came, with the cursor of the next one; null: it is the last. */
  show(next) {
    this.next = next;
    for (const [button, isOff] of [
      [this.first, this.cursor === ''],
      [this.before, this.back.length === 0],
      [this.further, next === null],
    ]) {
      // A button that goes dead under the focus would lose it.
      if (isOff && document.activeElement === button)
        this.further.closest('section').querySelector('[tabindex]').focus();
      button.disabled = isOff;
    }
  }
}
