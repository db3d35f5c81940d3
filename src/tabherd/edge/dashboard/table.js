// A table of any length, of which only the rows in sight are there.
//
// Rows keep their place by key while the list changes under them, and so does the selection. Up, Down, Page Up, Page
// Down, Home and End move it, Enter opens; the page hears other keys itself and asks `selected`.

import { h, render } from "./dom.js";

// Rows beyond the edges, so that fast scrolling meets no holes.
const SPARE_ROWS = 10;
// What a column needs that names no least width.
const LEAST_COLUMN = "6rem";

// columns: [{name, title, cell(row), sort?(row), width? (a grid track), isNumber?, isWideOnly? (hidden on phones)}].
export class Table {
  constructor({ label, columns, key, open = null, rowHeight = 38, sort = "", isDescending = false, atEnd = null }) {
    this.label = label;
    this.columns = columns;
    this.key = key;
    this.open = open;
    this.rowHeight = rowHeight;
    this.sort = sort;
    this.isDescending = isDescending;
    // Called whenever the last row is in sight, or nearly.
    this.atEnd = atEnd;
    // The key of the row that has the selection; null before there is one.
    this.selectedKey = null;
    this.rows = [];
    this.body = null;
    // How far it is scrolled and how much of it is in sight. Kept, since asking the body for them in the middle of a
    // change makes the browser lay out the whole page at once.
    this.top = 0;
    this.height = 0;
    this.size = new ResizeObserver(([entry]) => {
      this.height = entry.contentRect.height;
      this.soon();
    });
    this.isDrawing = false;
  }

  // The element that has the rows is there, or another one is there instead of it.
  attach(node) {
    this.body = node;
    this.top = 0;
    this.size.disconnect();
    this.size.observe(node);
  }

  get selected() {
    return this.rows.find((row) => this.key(row) === this.selectedKey) || null;
  }

  // The table with these rows; `empty` instead when there are none.
  view(rows, empty) {
    this.rows = this.sorted(rows);
    if (this.rows.length === 0 && empty) return empty;
    // What is drawn below is not of this tree: it is drawn right after it, and with each scroll.
    queueMicrotask(() => this.draw());
    const wide = this.columns.map((column) => column.width || "minmax(0, 1fr)").join(" ");
    const small = this.columns.filter((column) => !column.isWideOnly).map((column) => column.smallWidth || column.width || "minmax(0, 1fr)").join(" ");
    return h("div", {
      class: "table", role: "grid", "aria-label": this.label, "aria-rowcount": this.rows.length + 1,
      style: { "--columns": wide, "--columns-small": small, "--least": least(this.columns), "--row": `${this.rowHeight}px` },
    },
    h("div", { class: "row head", role: "row" }, this.columns.map((column) => this.head(column))),
    h("div", {
      class: "rows", role: "rowgroup", tabindex: "0", "aria-label": `${this.label}, rows`,
      onscroll: () => this.scrolled(), onkeydown: (event) => this.pressed(event),
      ref: (node) => this.attach(node),
    }));
  }

  head(column) {
    const props = { role: "columnheader", class: classes(column) };
    if (!column.sort) return h("span", props, column.title);
    const isSorted = this.sort === column.name;
    return h("button", {
      ...props, class: `${props.class} sortable`,
      "aria-sort": isSorted ? (this.isDescending ? "descending" : "ascending") : "none",
      onclick: () => {
        this.isDescending = isSorted ? !this.isDescending : false;
        this.sort = column.name;
        this.rows = this.sorted(this.rows);
        this.draw();
      },
    }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (this.isDescending ? "▾" : "▴") : ""));
  }

  sorted(rows) {
    const column = this.columns.find((one) => one.name === this.sort);
    if (!column?.sort) return rows;
    const way = this.isDescending ? -1 : 1;
    return rows
      .map((row) => [column.sort(row), row])
      .sort(([one], [other]) => way * (one < other ? -1 : one > other ? 1 : 0))
      .map(([, row]) => row);
  }

  scrolled() {
    this.top = this.body.scrollTop;
    this.soon();
  }

  soon() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.draw();
    });
  }

  draw() {
    if (!this.body?.isConnected) return;
    const { rows, rowHeight, top, height } = this;
    const first = Math.max(0, Math.min(Math.floor(top / rowHeight), rows.length) - SPARE_ROWS);
    const last = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + SPARE_ROWS);
    render(this.body,
      h("div", { key: " above", style: { height: `${first * rowHeight}px` } }),
      rows.slice(first, last).map((row, index) => this.row(row, first + index)),
      h("div", { key: " below", style: { height: `${(rows.length - last) * rowHeight}px` } }));
    if (last === rows.length) this.atEnd?.();
  }

  row(row, index) {
    const key = this.key(row);
    const isSelected = key === this.selectedKey;
    return h("div", {
      key, role: "row", class: `row${isSelected ? " selected" : ""}${this.open ? " opens" : ""}`, "data-key": key,
      "aria-rowindex": index + 2, "aria-selected": String(isSelected),
      onclick: (event) => {
        // A button or a link in the row means something else.
        if (event.target.closest("button, a, input, select")) return;
        this.select(index);
        if (this.open) this.open(row);
      },
    }, this.columns.map((column) => h("span", { role: "gridcell", class: classes(column) }, column.cell(row))));
  }

  select(index) {
    const row = this.rows[Math.max(0, Math.min(index, this.rows.length - 1))];
    this.selectedKey = row === undefined ? null : this.key(row);
    this.draw();
  }

  pressed(event) {
    if (event.target !== this.body || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.rows.findIndex((row) => this.key(row) === this.selectedKey);
    const page = Math.max(1, Math.floor(this.height / this.rowHeight) - 1);
    const moves = {
      ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.rows.length - 1,
    };
    if (event.key in moves) {
      this.select(moves[event.key]);
      this.reveal();
    } else if (event.key === "Enter" && this.selected && this.open) {
      this.open(this.selected);
    } else return;
    event.preventDefault();
  }

  reveal() {
    const top = this.rows.findIndex((row) => this.key(row) === this.selectedKey) * this.rowHeight;
    if (top < this.top) this.body.scrollTop = top;
    else if (top + this.rowHeight > this.top + this.height) this.body.scrollTop = top + this.rowHeight - this.height;
    this.top = this.body.scrollTop;
    this.draw();
  }
}

const classes = (column) => [column.isNumber && "number", column.isWideOnly && "wide-only"].filter(Boolean).join(" ");

// The width below which the table scrolls sideways: what its columns need at least, with what is between and
// beside them.
const least = (columns) =>
  `calc(${columns.map(({ width = "" }) => /^(?:minmax\()?([1-9.][\d.]*rem)/.exec(width)?.[1] || LEAST_COLUMN).join(" + ")} + ${0.9 * (columns.length + 1) + 1}rem)`;
