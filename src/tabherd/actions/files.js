// Gives files to an input: whether it takes them, and under which names the page saw them.

// What the page saw in the input when its choice changed, and whether the input was in the document then.
let filesSeen = null;

function hold(element) {
  // An input of which the browser told us, for the calls that follow. It need not be in the document.
  held = element;
}

function heldInput() {
  return held;
}

const filesIn = (input) => ({names: Array.from(input.files, (file) => file.name), isConnected: input.isConnected});

function noteFiles(event) {
  filesSeen = filesIn(event.currentTarget);
}

function expectFiles(count) {
  // {done: "give"} when the held element takes so many files, {done: "press"} when it is no file input at all.
  if (!(held instanceof HTMLInputElement) || held.type !== "file") return {done: "press"};
  if (held.webkitdirectory) return {failed: "it takes a whole directory, and single files are all that can be given"};
  if (count > 1 && !held.multiple) return {failed: "it takes one file only"};
  filesSeen = null;
  // In the moment of the choice: pages like to empty the input when they have read it.
  held.addEventListener("input", noteFiles, {capture: true, once: true});
  return {done: "give"};
}

function clearFiles() {
  // As if the choice was taken back. Chromium does not do this by itself.
  if (held.files.length > 0) {
    held.value = "";
    changeOf(held, "input", "change");
  }
  return null;
}

function filesGiven() {
  held.removeEventListener("input", noteFiles, {capture: true});
  return filesSeen ?? filesIn(held);
}
