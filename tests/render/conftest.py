"""One Chromium for all tests of the pages; each test opens a context of its own in it."""

import pytest

from tests.render.chromium import a_browser


@pytest.fixture(scope="package")
def browser():
    with a_browser() as browser:
        yield browser
