"""The former names of what is in `pyddmq.testing`."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new"),
    [("pyddmq.action_testing", "pyddmq.testing.actions"), ("pyddmq.client.testing", "pyddmq.testing.client")],
)
def test_former_name_is_refused_with_the_name_to_import(old: str, new: str) -> None:
    """For one version, so that a program that used it shows what to change."""
    with pytest.raises(ImportError, match=f"import {new}$"):
        import_module(old)
