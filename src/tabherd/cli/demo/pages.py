"""The pages of the demo's site, as text: a desk for one agent, and a board that several share.

Whose command it was is told by the command itself; whose page it is, by the cookies that the browser sends along. Each
document draws a number of its own, so that the site can tell one life of a page from the next.
"""

from __future__ import annotations

from html import escape
from typing import Final

# Of both pages. `work` brackets what a command does in the page with marks that the site keeps.
SCRIPT: Final = """
const doc = Math.random().toString(36).slice(2);
const told = (what, fields) => fetch('/' + what, {
  method: 'POST', body: JSON.stringify({document: doc, ...fields}),
});
const rest = ms => new Promise(resolve => setTimeout(resolve, ms));
async function work(agent, visit, tab, id, ms) {
  const claim = {agent, visit, tab, id};
  await told('begin', {...claim, pageMs: Date.now()});
  document.querySelector('#now').textContent = agent;
  await rest(ms);
  document.querySelector('#now').textContent = 'nobody';
  await told('end', {...claim, pageMs: Date.now()});
  return doc;
}
"""

STYLE: Final = "body{font:16px system-ui;margin:2em;max-width:40em} li{color:#555} b{color:#b40}"

DESK_SCRIPT: Final = """
const here = new URLSearchParams(location.search);
document.querySelector('#add').onclick = async () => {
  const field = document.querySelector('#line'), id = field.value;
  if (!id) return;
  field.value = '';
  await told('add', {agent: id.split('.')[0], visit: id.split('.').slice(0, 2).join('.'), id});
  const line = document.createElement('li');
  line.id = line.textContent = id;
  document.querySelector('#log').append(line);
};
if (here.has('pulse')) {
  setInterval(() => told('pulse', {agent: here.get('agent'), visit: here.get('visit')}), 200);
}
"""


def desk(cookie_agent: str, lines: list[str]) -> str:
    """The page of whoever the cookies say it is, with the lines that it wrote before."""
    written = "".join(f'<li id="{escape(line)}">{escape(line)}</li>' for line in lines)
    who = escape(cookie_agent) or "nobody"
    return _page(
        f"Desk of {who}",
        f"<p>Logged in: <b id=who>{who}</b>. At work: <b id=now>nobody</b></p>"
        f"<input id=line autocomplete=off><button id=add>Add</button><ul id=log>{written}</ul>",
        DESK_SCRIPT,
    )


def board() -> str:
    """The page on which several agents take turns."""
    return _page("Board", "<p>At the board: <b id=now>nobody</b></p>", "")


def _page(title: str, body: str, script: str) -> str:
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1>{body}<script>{SCRIPT}{script}</script>"
    )
