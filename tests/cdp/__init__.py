"""Unmodified Playwright and Puppeteer clients, several at once on one Chromium, behind the CDP endpoint."""

import pytest

# Cases are not test modules by name, but say as much when an assertion of theirs fails.
pytest.register_assert_rewrite(
    "tests.cdp.client",
    "tests.cdp.playwright_cases_connection",
    "tests.cdp.playwright_cases_emulation",
    "tests.cdp.playwright_cases_frames",
    "tests.cdp.playwright_cases_input",
    "tests.cdp.playwright_cases_network",
    "tests.cdp.playwright_cases_output",
    "tests.cdp.playwright_cases_pages",
    "tests.cdp.playwright_cases_script",
    "tests.cdp.playwright_cases_state",
    "tests.cdp.playwright_cases_workers",
)
