"""A node asks nothing by which librdkafka may end its process (`upstream.kafka_client.asking_process`)."""

from __future__ import annotations

import ast

from tests.unit.project.test_house_rules import ROOT
from tests.unit.project.test_import_circles import imported, module_names

ASKING = {"upstream.kafka_client.all_groups", "upstream.kafka_client.look"}
"""Modules that ask by the AdminClient."""
OUTSIDE = {"upstream.kafka_client.all_groups_process", "upstream.kafka_client.look"}
"""Modules that use them: processes of their own."""


def test_administration_is_asked_by_processes_of_their_own() -> None:
    """By name of who makes such a client, and of who imports that."""
    modules = module_names()
    makes, uses = set(), set()
    for module, file in modules.items():
        if module.startswith(("tests", "bench")):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        if ".admin(client_id" in text or ".admin(self._client_id" in text or 'settings.admin("' in text:
            makes.add(module)
        if ASKING & imported(ast.parse(text), modules):
            uses.add(module)
    assert (makes, uses) == (ASKING, OUTSIDE)
