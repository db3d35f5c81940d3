"""What tabherd answers itself, because Chromium's answer would be about every tenant, or its effect on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import message
from .emulation import Line, TargetDomain
from .message import Request
from .rules import Kind
from .tree import Node, Tree


class Answers:
    """The answers to one client. What it asked of the whole browser holds for its own pages."""

    def __init__(self, line: Line, targets: TargetDomain, tree: Tree, close: Callable[[], None]) -> None:
        self._line = line
        self._targets = targets
        self._tree = tree
        # Ends the connection of a client that closes its browser.
        self._close = close
        # Whether certificates are not checked in the client's pages.
        self._ignores_certificates = False

    def give(self, node: Node, request: Request, params: dict[str, Any]) -> None:
        """Do what was asked, and answer."""
        match request.method:
            case "Target.setDiscoverTargets":
                self._targets.discover(node.session_id, params)
                self._answer(request, {})
            case "Target.getTargets":
                self._answer(request, {"targetInfos": self._targets.targets(params)})
            case "Target.getDevToolsTarget":
                # No page here has developer tools open; some clients keep asking.
                self._answer(request, {})
            case "Target.getBrowserContexts":
                self._answer(request, self._targets.contexts())
            case "Target.setAutoAttach" if params.get("autoAttach") and params.get("flatten") is not True:
                text = "Only flat sessions are offered: set flatten to true."
                self._line.send(message.failure(request.id, request.sessionId or "", message.INVALID_PARAMS, text))
            case "Target.setAutoAttach":
                self._line.spawn(self._auto_attach(node, request, params))
            case "Security.setIgnoreCertificateErrors":
                self._ignores_certificates = params.get("ignore") is True
                for one in self._tree:
                    self._set_certificates(one)
                self._answer(request, {})
            case "Browser.setDownloadBehavior":
                # Of a context that tenants share: nothing is downloaded there, but clients must be able to ask.
                self._answer(request, {})
            case "Browser.close":
                self._answer(request, {})
                self._close()
            case _:
                raise AssertionError(f"nobody emulates {request.method}")

    def attached(self, node: Node) -> None:
        """The client has one more session."""
        if self._ignores_certificates:
            self._set_certificates(node)

    async def _auto_attach(self, node: Node, request: Request, params: dict[str, Any]) -> None:
        await self._targets.auto_attach(node.session_id, params)
        self._answer(request, {})

    def _set_certificates(self, node: Node) -> None:
        if node.kind is Kind.PAGE:
            params = {"ignore": self._ignores_certificates}
            self._line.inject("Security.setIgnoreCertificateErrors", params, node.session_id)

    def _answer(self, request: Request, result: dict[str, Any]) -> None:
        self._line.send(message.result(request.id, request.sessionId or "", result))
