"""An ordinary page, such as a shop has it: navigation, some thirty links, a form, a table, paragraphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.server.local_site import LocalSite, serving

SECTIONS = (
    "Home",
    "Catalogue",
    "Offers",
    "New arrivals",
    "Brands",
    "Stores",
    "Magazine",
    "Help",
    "My account",
    "Basket",
)
CATEGORIES = (
    "Espresso machines",
    "Filter coffee makers",
    "Hand grinders",
    "Electric grinders",
    "Milk frothers",
    "Kettles",
    "Scales and timers",
    "Cups and glasses",
    "Spare parts",
    "Descaling and cleaning",
    "Gift cards",
    "Refurbished",
)
FOOTER = ("About us", "Jobs", "Press", "Delivery", "Returns", "Warranty", "Privacy", "Terms", "Imprint")
ROWS = (
    ("Weight", "14.2 kg", "11.8 kg"),
    ("Width", "31 cm", "28 cm"),
    ("Water tank", "2.5 l", "1.8 l"),
    ("Pump pressure", "9 bar", "9 bar"),
    ("Boiler", "Dual, stainless steel", "Single, brass"),
    ("Price", "1,499.00 €", "899.00 €"),
)
PARAGRAPHS = (
    "Two boilers let you brew and steam at the same time, and keep both temperatures within half a degree. It takes "
    "eleven minutes to be warm all the way through; a timer can do that before you are up.",
    "The group head is the standard size of 58 mm, so that baskets, tampers and screens of other makers fit. The "
    "pressure can be set from the outside with the screw next to the gauge, without opening the housing.",
    "We test every machine for two hours before it leaves the workshop, and adjust it to the hardness of your water if "
    "you tell us your postcode when you order.",
)


def html() -> str:
    links = [f"<a href=/{number}>{name}</a>" for number, name in enumerate((*SECTIONS, *CATEGORIES, *FOOTER))]
    nav, side, foot = links[: len(SECTIONS)], links[len(SECTIONS) : -len(FOOTER)], links[-len(FOOTER) :]
    rows = "".join(f"<tr><th scope=row>{name}<td>{one}<td>{two}</tr>" for name, one, two in ROWS)
    return f"""<!doctype html><html lang=en><title>Duetto 58 – Kaffeehaus</title>
<header><nav aria-label=Main><ul>{"".join(f"<li>{link}</li>" for link in nav)}</ul></nav>
<form role=search><input type=search aria-label="Search the shop"><button>Search</button></form></header>
<aside><h2>Categories</h2><ul>{"".join(f"<li>{link}</li>" for link in side)}</ul></aside>
<main><h1>Duetto 58</h1>{"".join(f"<p>{text}</p>" for text in PARAGRAPHS)}
<h2>Compare</h2><table><tr><th>Property<th>Duetto 58<th>Uno 58</tr>{rows}</table>
<h2>Ask us</h2><form><label>Your name <input name=name></label><label>E-mail <input type=email name=mail></label>
<label>Topic <select name=topic><option>Order<option>Repair<option>Other</select></label>
<label>Message <textarea name=message></textarea></label>
<label><input type=checkbox name=news> Send me the newsletter</label><button type=submit>Send</button></form></main>
<footer>{" ".join(foot)}</footer></html>"""


class _Shop(LocalSite):
    def _handler(self) -> type[BaseHTTPRequestHandler]:
        body = html().encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Answer


@contextmanager
def shop() -> Iterator[str]:
    """Its address, while it is open."""
    with serving(_Shop()) as site:
        yield site.url()
