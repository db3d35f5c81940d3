"""Clients of the CDP endpoint that are built on Playwright and Puppeteer, as their users start them."""

import pytest

# Not test modules by name, but they say as much when an assertion of theirs fails.
pytest.register_assert_rewrite("tests.cdp_clients.documented", "tests.cdp_clients.mcp")
