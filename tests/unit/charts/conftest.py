"""Tests of charts draw them."""

import pytest


@pytest.fixture(autouse=True)
def _pictures_drawn(pictures_drawn):
    """All of them."""
