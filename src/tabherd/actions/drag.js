// Tells how a drag goes: whether the press that begins it was swallowed, and whether the browser carries something.
//
// While the browser carries something (HTML drag and drop), the page gets drag events, and no more of the mouse.

// How long an end that was asked for may take to be told; a page that has removed what was dragged is not told at all.
const DRAG_END_MAX_MS = 500;

let isDragWatched = false;
// The last `dragstart`, whether the `dragend` that belongs to it has come, and who waits for that.
let dragBegun = null;
let isDragEnded = false;
let onDragEnd = null;

function watchDrag() {
  dragBegun = null;
  isDragEnded = false;
  if (isDragWatched) return null;
  isDragWatched = true;
  addEventListener("dragstart", (event) => {
    if (!event.isTrusted) return;
    dragBegun = event;
    isDragEnded = false;
  }, {capture: true});
  addEventListener("dragend", (event) => {
    if (!event.isTrusted) return;
    isDragEnded = true;
    onDragEnd?.();
  }, {capture: true});
  return null;
}

function isCarrying() {
  // A page that prevents the default wants to move things by itself.
  return dragBegun !== null && !dragBegun.defaultPrevented && !isDragEnded;
}

function dragEnd() {
  if (!isCarrying()) return null;
  return new Promise((done) => {
    onDragEnd = () => done(null);
    setTimeout(onDragEnd, DRAG_END_MAX_MS);
  });
}

function pressJudged() {
  // What `releaseGuard` would tell, with the guard left in place: what was pressed is not released yet.
  return {isMissed: guard !== null && guard.isMissed, coveredBy: guard?.coveredBy ?? null};
}
