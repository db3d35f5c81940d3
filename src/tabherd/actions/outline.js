// Writes the things that were gathered from a document down, one line each.
//
//     heading "Sign in" [level=1]
//     textbox "E-mail" [ref=kqa1] value="a@b.test"
//     text "Read the" link "terms" [ref=kqa2] "first."
//     - link "Linen shirt" [ref=kqa3] "24.90" button "Add" [ref=kqa4]
//     table "Orders" [ref=kqa5]
//       - "17" "Ann" "" link "Open" [ref=kqa6]
//
// What belongs together shares a line, as long as there is nothing in it that has parts itself: a paragraph, an item of
// a list and a row of a table, which begin with a dash. The cells of a row are what stands in it, one by one; where one
// has several things in it there are bars between them. What a page says stands in quotes, so that no text can pass for
// a thing.

// Longer ones go on in the next.
const LINE_MAX = 400;
// What may share a line with all that is in it.
const INLINED = new Set(["alert", "article", "cell", "columnheader", "gridcell", "log", "rowheader", "status"]);
const OPTIONS_MAX = 120;

const quote = (text, most = TEXT_MAX) => JSON.stringify(shorten(text, most));

class Outline {
  constructor(order, counts) {
    this.order = order;
    this.counts = counts;
    this.lines = [];
    this.frames = [];
    this.chars = 0;
    this.isCut = false;
  }

  write(items, depth = 0) {
    let before = null;
    for (const item of items) {
      if (this.isCut) return;
      if (item.isDropped) continue;
      this.writeItem(item, depth, before);
      before = item;
    }
  }

  writeItem(item, depth, before) {
    const {role, children} = item;
    // The dashes of its items tell a list, unless one follows another.
    const isBare = !item.isReferred && !item.name && !item.states;
    if (role === "list" && isBare && before?.role !== "list") this.write(children, depth);
    else if (role === "listitem" && isBare) this.writeEntry("-", children, depth);
    else if (role === "listitem" && children.length) this.writeEntry(`${this.head(item)}:`, children, depth);
    else if (role === "paragraph" || (CELLS.has(role) && isBare)) this.writeEntry("", children, depth);
    else if (role === "row" && children.every(isFlatCell)) this.writeRow(item, depth, isBare);
    else if (INLINED.has(role) && children.length && children.every(isFlat)) {
      this.writeEntry(`${this.head(item)}:`, children, depth);
    } else if (isFlat(item)) this.add(depth, this.piece(item, true));
    else if (this.add(depth, this.head(item))) {
      if (isFrame(item.element)) {
        this.frames.push({line: this.lines.length - 1, depth: depth + 1, ref: item.ref});
      }
      this.write(children, depth + 1);
    }
  }

  writeEntry(head, children, depth) {
    // What it begins with shares its line, as far as it is flat; the rest follows below.
    const kept = children.filter((child) => !child.isDropped);
    let flat = kept.findIndex((child) => !isFlat(child));
    if (flat < 0) flat = kept.length;
    // A dash before a single thing with parts says nothing.
    const isWrapper = flat === 0 && (head === "" || (head === "-" && kept.length < 2));
    if (!isWrapper && !this.addPieces(depth, head, kept.slice(0, flat), " ")) return;
    this.write(kept.slice(flat), isWrapper || head === "" ? depth : depth + 1);
  }

  writeRow(row, depth, isBare) {
    const shown = row.children.filter((cell) => !cell.isDropped);
    const cells = shown.map((cell) => cell.isReferred ? [cell] : cell.children);
    if (!row.isReferred && cells.every((cell) => cell.length === 0)) return;
    const separator = cells.some((cell) => cell.length > 1) ? " | " : " ";
    this.addPieces(depth, isBare ? "-" : `${this.head(row)}:`, cells, separator);
  }

  addPieces(depth, head, items, separator) {
    // A text needs no word for it but at the beginning of a line.
    let line = head, isEmpty = true;
    for (const item of items) {
      const isFirst = line === "";
      const piece = Array.isArray(item) ? this.pieces(item) || '""' : this.piece(item, isFirst);
      if (!isEmpty && line.length + piece.length > LINE_MAX) {
        if (!this.add(depth, line)) return false;
        line = head === "" ? this.piece(item, true) : `  ${piece}`;
      } else line += isEmpty ? (isFirst ? piece : ` ${piece}`) : separator + piece;
      isEmpty = false;
    }
    return line === "" || this.add(depth, line);
  }

  piece(item, isAlone) {
    // A flat thing with what is in it.
    if (item.role === "text") return (isAlone ? "text " : "") + quote(squeeze(item.name));
    // Beside other things, the heading that a link or a button makes says nothing more than that does.
    const isThrough = item.role === "paragraph" || (item.role === "heading" && item.name === "" && !isAlone);
    if (isThrough) return this.pieces(item.children);
    return item.children.length ? `${this.head(item)}: ${this.pieces(item.children)}` : this.head(item);
  }

  pieces(items) {
    return items.filter((item) => !item.isDropped).map((item) => this.piece(item, false)).join(" ");
  }

  head(item) {
    const name = item.name ? ` ${quote(item.name)}` : "";
    if (item.isReferred) item.ref ??= remember(item.element, item.facts ?? factsOf(item.element), this.counts);
    const ref = item.isReferred ? ` [ref=${this.order.prefix}${item.ref}]` : "";
    return item.role + name + ref + (item.states ?? "") + (item.value ?? "");
  }

  add(depth, text) {
    if (this.isCut) return false;
    const line = "  ".repeat(depth) + text;
    this.chars += line.length + 1;
    // The caller's bound is on what people read, so the line that would pass it is not begun.
    if (this.chars > this.order.charsMax) {
      this.isCut = true;
      return false;
    }
    this.lines.push(line);
    return true;
  }
}

function isFlat(item) {
  // Without parts, or a heading or a paragraph whose parts have none.
  if (item.isDropped || item.role === "text") return true;
  if (isFrame(item.element)) return false;
  const isThin = item.role === "paragraph" || (item.role === "heading" && item.name === "");
  return item.children.length === 0 || (isThin && item.children.every(isFlat));
}

function isFlatCell(item) {
  return item.isDropped || (CELLS.has(item.role) && item.children.every(isFlat));
}
