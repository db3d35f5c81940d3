"""Messages that two parsers could read in two ways, and content that looks like messages: all are read in one way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.cdp_life.conftest import ws_of
from tests.cdp_life.wire_client import CdpError

from .conftest import POOL, Scene
from .hostile import hostile

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Ids of messages that must be refused; those that are not in the form of one are answered without.
FIRST_ID = 1_000


def texts(scene: Scene, own_target: str, own_session: str) -> Iterator[str]:
    """Each with %d for its id."""
    target, session = scene.victim.target_id, scene.victim.page
    info = '{"id":%%d,"method":"Target.getTargetInfo",%s}'
    # Twice the same key: in the message, in the parameters, and with one of the two escaped.
    yield info % f'"params":{{"targetId":"{own_target}","targetId":"{target}"}}'
    yield info % f'"params":{{"targetId":"{own_target}","target\\u0049d":"{target}"}}'
    yield info % f'"params":{{"targetId":"{own_target}"}},"params":{{"targetId":"{target}"}}'
    yield info % f'"params":{{"targetId":"{own_target}"}},"par\\u0061ms":{{"targetId":"{target}"}}'
    yield '{"id":%d,"method":"Browser.getVersion","method":"Browser.crash"}'
    yield '{"id":%d,"method":"Browser.getVersion","m\\u0065thod":"Browser.crash"}'
    yield '{"id":%d,"method":"\\u0042rowser.crash"}'
    # Comments, trailing commas, other quotes: not JSON.
    yield '{"id":%d,/**/"method":"Browser.crash"}'
    yield '{"id":%d,"method":"Browser.crash",}'
    yield "{'id':%d,'method':'Browser.crash'}"
    # Names that are almost right.
    for method in ("browser.crash", "BROWSER.CRASH", "Browser.Crash", "Browser..crash", "Browser/crash", "crash"):
        yield f'{{"id":%d,"method":"{method}"}}'
    for method in (
        "\uff22rowser.crash",
        "Browser.crash\\u0000",
        "Browser.crash ",
        " Browser.crash",
        "Browser.cra\u017fh",
    ):
        yield f'{{"id":%d,"method":"{method}"}}'
    # Sessions: the victim's, twice, of other types, and with something in its name.
    yield f'{{"id":%d,"method":"Page.close","sessionId":"{session}"}}'
    yield f'{{"id":%d,"method":"Page.close","sessionId":"{own_session}","sessionId":"{session}"}}'
    yield f'{{"id":%d,"method":"Page.close","sessionId":["{session}"]}}'
    yield '{"id":%d,"method":"Page.close","sessionId":7}'
    yield f'{{"id":%d,"method":"Page.close","sessionId":"{own_session}\\",\\"method\\":\\"Browser.crash"}}'
    yield f'{{"id":%d,"method":"Page.close","sessionId":"{session.lower()}"}}'
    # Parameters that are no object, or that try to end the message early.
    yield '{"id":%d,"method":"Target.closeTarget","params":["targetId"]}'
    yield f'{{"id":%d,"method":"Target.closeTarget","params":"{target}"}}'
    yield f'{{"id":%d,"method":"Target.closeTarget","params":{{"targetId":{{"x":"{target}"}}}}}}'
    for params in ('{}},"method":"Browser.crash"', "", "{", '{"a":1}}', '"', "[}"):
        yield f'{{"id":%d,"method":"Runtime.evaluate","sessionId":"{own_session}","params":{params}}}'
    # Several in one, and very deep ones.
    yield '[{"id":%d,"method":"Browser.crash"}]'
    yield '{"id":%d,"method":"Browser.getVersion"}{"id":9,"method":"Browser.crash"}'
    yield '{"id":%d,"method":"Target.createTarget","params":' + "[" * 20_000 + "]" * 20_000 + "}"


async def test_no_message_has_a_second_meaning(scene: Scene) -> None:
    token = scene.server.token_of("attacker")
    async with hostile(ws_of(scene.server, f"pool={POOL}"), token) as other:
        own_session = await other.page()
        own = (await other.pages())[0]["targetId"]
        count = 0
        for number, text in enumerate(texts(scene, own, own_session), FIRST_ID):
            await other.say(text % number, number)
            count += 1
        assert count > 30
        await other.call("Browser.getVersion")
        results = {id: answer for id, answer in other.answers.items() if id >= FIRST_ID and "result" in answer}
        assert results == {}
        assert other.leaks(scene.victim.secrets) == []
        # The messages were for others: its own page is there.
        assert await other.value("1 + 1", own_session) == 2
        for id in (-1_000_000_001, -(2**31), 2**31, 2**53, 2**63, -(2**63)):
            for method in ("Browser.getVersion", "Target.attachToBrowserTarget", "Target.createBrowserContext"):
                await other.say(json.dumps({"id": id, "method": method}), id)
            await other.call("Browser.getVersion")
            assert "result" not in other.answers.get(id, {}), id


async def test_what_a_page_says_is_never_taken_for_a_message(scene: Scene) -> None:
    attacker, page = scene.attacker, scene.page
    fake = "F" * 32
    info = {"targetId": fake, "type": "browser", "title": "", "url": "", "attached": True, "canAccessOpener": False}
    spoofs = [
        {"method": "Target.attachedToTarget", "params": {"sessionId": fake, "targetInfo": info}},
        {"id": -1_000_000_001, "result": {"targetId": scene.victim.mark[:6]}},
        {"id": 1, "result": {}, "sessionId": fake},
    ]
    for spoof in map(json.dumps, spoofs):
        await attacker.call("Runtime.enable", {}, page)
        await attacker.call("Runtime.addBinding", {"name": "bound"}, page)
        quoted = json.dumps(spoof)
        await attacker.value(f"console.log({quoted}); bound({quoted}); document.title = {quoted}; 1", page)
        await attacker.value(f"history.pushState(0, '', location.pathname + '#' + {quoted}); 1", page)
    with pytest.raises(CdpError) as refused:
        await attacker.call("Browser.getVersion", {}, fake)
    assert refused.value.code == -32001
