"""What a client asks for faster than Chromium can make it counts already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tabherd.edge.cdp.emulation import Line, TargetDomain
from tabherd.edge.cdp.ownership import PAGES_MAX, Ownership
from tabherd.edge.cdp.replies import Replies
from tabherd.edge.cdp.rules import Tenancy


def nothing_yet() -> Ownership:
    """A client in whose context there is no page."""
    return Ownership(
        live=cast(Any, SimpleNamespace(row=SimpleNamespace(context_id="C"))),
        tenancy=Tenancy(is_shared=False, is_alone=False),
        watch=cast(Any, SimpleNamespace(in_context=lambda context_id: iter(()))),
        registry=cast(Any, None),
        proxy={},
        download_dir=lambda: "",
        may_read=lambda path: False,
    )


def test_pages_count_from_when_they_are_asked_for_until_chromium_has_refused_them() -> None:
    own, said = nothing_yet(), list[bytes]()
    replies = Replies(cast(Line, SimpleNamespace(send=said.append)), cast(TargetDomain, None), own)
    hooks = [replies.hook_for("Target.createTarget", {"url": "about:blank"}, "") for _ in range(PAGES_MAX)]
    assert own.targets_left == 0
    refusal = b'{"id":1,"error":{"code":-32000,"message":"no"}}'
    hooks[0](refusal)
    assert (own.targets_left, said) == (1, [refusal])
