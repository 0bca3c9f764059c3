"""A node asks nothing by which librdkafka may end its process (`upstream.kafka_client.all_groups_process`)."""

from __future__ import annotations

import ast

from tests.unit.project.test_house_rules import ROOT
from tests.unit.project.test_import_circles import module_names

ASKING = {"upstream.kafka_client.all_groups", "upstream.kafka_client.cluster_inspection"}
"""Modules that ask by the AdminClient."""
BESIDE = {"look_beside"}
"""Of their names, those by which a process of its own asks."""
OUTSIDE = {"upstream.kafka_client.all_groups_process"}
"""Modules that use the others: they run in processes of their own."""


def test_administration_is_asked_by_processes_of_their_own() -> None:
    """By name of who makes such a client, and of who imports that."""
    makes, uses = set(), set()
    for module, file in module_names().items():
        if module.startswith(("tests", "bench")):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        if ".admin(client_id" in text or ".admin(self._client_id" in text or 'settings.admin("' in text:
            makes.add(module)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and {each.name for each in node.names} - BESIDE:
                names = {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
                uses |= {module} if names & ASKING else set()
    assert (makes, uses) == (ASKING, OUTSIDE)
