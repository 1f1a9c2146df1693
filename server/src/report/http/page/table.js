// A table that is brought up to date in place: rows stay the same elements for as long as they are
// shown, so that the focus, a selection and a screen reader's place survive an update.

import { make, setText } from './text.js';

export class Table {
  /** Each column is { fill(cell, row), class }. `nameOf` tells rows apart. */
  constructor(body, columns, nameOf) {
    this.body = body;
    this.columns = columns;
    this.nameOf = nameOf;
    this.rows = new Map();
    this.isNew = true;
  }

  show(items) {
    const before = this.rows;
    this.rows = new Map();
    // What moved in the server's table while a page was read may be listed twice.
    const once = [...new Map(items.map((item) => [this.nameOf(item), item]))];
    once.forEach(([name, item], index) => {
      const row = before.get(name) ?? this.makeRow();
      before.delete(name);
      this.rows.set(name, row);
      row.item = item;
      this.columns.forEach((column, number) => column.fill(row.children[number], item, row));
      const place = this.body.children[index];
      if (place !== row) this.body.insertBefore(row, place ?? null);
    });
    for (const row of before.values()) {
      // The focus goes to the table, not to the top of the page.
      if (row.contains(document.activeElement)) row.closest('[tabindex]')?.focus();
      row.remove();
    }
    this.isNew = false;
  }

  /** What comes next is another list: its rows are not news. */
  startOver() {
    this.isNew = true;
  }

  makeRow() {
    const row = make('tr');
    if (!this.isNew) row.className = 'fresh';
    for (const column of this.columns)
      row.append(make('td', column.class ? { class: column.class } : {}));
    return row;
  }
}

/** A column of plain text. */
export function text(say, className) {
  return { class: className, fill: (cell, item) => setText(cell, say(item)) };
}

/** A column of buttons that look like links. */
export function opener(say, open, className) {
  return {
    class: className,
    fill(cell, item, row) {
      if (!cell.firstChild) {
        const button = make('button', { type: 'button', class: 'link' });
        button.addEventListener('click', () => open(row.item));
        cell.append(button);
      }
      setText(cell.firstChild, say(item));
    },
  };
}

/** A column of a text and a quieter one behind it. */
export function twofold(say, sayMore, className) {
  return {
    class: className,
    fill(cell, item) {
      if (!cell.firstChild) cell.append(make('span'), make('span', { class: 'more' }));
      setText(cell.firstChild, say(item));
      setText(cell.lastChild, sayMore(item));
    },
  };
}
