// What pages do beyond being read: search in all of them, and copy code. Everything else works without it.
'use strict';

const RESULTS_MAX = 12;
const SNIPPET_LENGTH = 150;
const root = document.documentElement.dataset.root;
const field = document.getElementById('search');
const found = document.getElementById('found');

// The index is a script and not a fetch, because pages on a disk may not fetch; it is loaded at the first wish.
let sections = null;
function load() {
  sections ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${root}search-index.js`;
    script.onload = () => resolve(window.tabherdSections);
    script.onerror = () => reject(new Error('The search index is not there.'));
    document.head.append(script);
  });
  return sections;
}

function wordsOf(text) {
  return text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
}

// How well a section answers: every word must begin one of its words; titles count most, then how often it is said.
function worth([page, title, , text], words) {
  let sum = 0;
  const heads = [[title, 12], [page, 6]].map(([head, weight]) => [wordsOf(head), weight]);
  const low = text.toLowerCase();
  for (const word of words) {
    let best = 0;
    for (const [head, weight] of heads) {
      if (head.includes(word)) best += weight;
      else if (head.some((each) => each.startsWith(word))) best += weight / 2;
    }
    const times = low.split(word).length - 1;
    best += Math.min(times, 6) / 2;
    if (best === 0) return 0;
    sum += best;
  }
  return sum;
}

function marked(text, words) {
  const parts = document.createDocumentFragment();
  const low = text.toLowerCase();
  let at = 0;
  while (at < text.length) {
    const next = words
      .map((word) => [low.indexOf(word, at), word.length])
      .filter(([place]) => place >= 0)
      .sort((one, other) => one[0] - other[0])[0];
    if (!next) break;
    parts.append(text.slice(at, next[0]));
    const mark = document.createElement('mark');
    mark.textContent = text.slice(next[0], next[0] + next[1]);
    parts.append(mark);
    at = next[0] + next[1];
  }
  parts.append(text.slice(at));
  return parts;
}

function snippet(text, words) {
  const low = text.toLowerCase();
  const first = Math.min(...words.map((word) => low.indexOf(word)).filter((place) => place >= 0));
  const start = Number.isFinite(first) ? Math.max(0, first - 50) : 0;
  const begin = start === 0 ? 0 : text.indexOf(' ', start) + 1;
  const cut = text.slice(begin, begin + SNIPPET_LENGTH);
  return (begin ? '… ' : '') + cut + (begin + SNIPPET_LENGTH < text.length ? ' …' : '');
}

function entry([page, title, where, text], words, at) {
  const line = document.createElement('li');
  line.id = `found-${at}`;
  line.role = 'option';
  const link = document.createElement('a');
  link.href = root + where;
  link.tabIndex = -1;
  const name = document.createElement('strong');
  name.append(marked(title, words));
  const rest = document.createElement('small');
  rest.append(title === page ? '' : `${page} — `, marked(snippet(text, words), words));
  link.append(name, rest);
  line.append(link);
  return line;
}

let asked = 0;
async function search() {
  const words = [...new Set(wordsOf(field.value))];
  const mine = ++asked;
  if (words.length === 0) return close();
  let answer;
  try {
    const ranked = (await load()).map((section) => [worth(section, words), section]).filter(([value]) => value > 0);
    ranked.sort((one, other) => other[0] - one[0]);
    answer = ranked.slice(0, RESULTS_MAX).map(([, section], at) => entry(section, words, at));
  } catch (error) {
    answer = [nothing(error.message)];
  }
  // Whoever typed on meanwhile is answered by the later search.
  if (mine !== asked) return;
  found.replaceChildren(...(answer.length ? answer : [nothing('Nothing found.')]));
  found.hidden = false;
  field.setAttribute('aria-expanded', 'true');
  choose(0);
}

function nothing(message) {
  const line = document.createElement('li');
  line.className = 'none';
  line.textContent = message;
  return line;
}

function close() {
  asked += 1;
  found.hidden = true;
  found.replaceChildren();
  field.setAttribute('aria-expanded', 'false');
  field.removeAttribute('aria-activedescendant');
}

function choose(at) {
  const lines = [...found.querySelectorAll('[role=option]')];
  if (lines.length === 0) return;
  const chosen = lines[(at + lines.length) % lines.length];
  for (const line of lines) line.setAttribute('aria-selected', String(line === chosen));
  field.setAttribute('aria-activedescendant', chosen.id);
  chosen.scrollIntoView({ block: 'nearest' });
}

field.addEventListener('focus', () => load().catch(() => {}));
field.addEventListener('input', search);
field.addEventListener('keydown', (event) => {
  const lines = [...found.querySelectorAll('[role=option]')];
  const at = lines.findIndex((line) => line.getAttribute('aria-selected') === 'true');
  if (event.key === 'ArrowDown') choose(at + 1);
  else if (event.key === 'ArrowUp') choose(at - 1);
  else if (event.key === 'Enter' && at >= 0) lines[at].firstChild.click();
  else if (event.key === 'Escape') close();
  else return;
  event.preventDefault();
});
found.addEventListener('click', (event) => { if (event.target.closest('a')) close(); });
document.addEventListener('click', (event) => { if (!event.target.closest('.search')) close(); });
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input')) return;
  event.preventDefault();
  field.focus();
});

for (const block of document.querySelectorAll('.code')) {
  const button = document.createElement('button');
  button.className = 'copy';
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector('code').textContent);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Not allowed';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  block.append(button);
}
