"""The section `node.tracing`, and what is said of mappings that may be left out."""

from __future__ import annotations

import pytest

from conf import Config, ConfigError, loads
from tests.unit.conf_tools import refused


def test_nothing_is_traced_by_default() -> None:
    """The section has to be written out."""
    assert Config().node.tracing is None


def test_endpoint_without_a_path_is_that_of_traces() -> None:
    """As OpenTelemetry's own exporters do; a path is kept."""
    for endpoint, url in (
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector:4318/", "https://collector:4318/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ):
        tracing = loads(f"node: {{tracing: {{endpoint: '{endpoint}'}}}}").config.node.tracing
        assert tracing is not None
        assert tracing.url == url


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("node:\n  tracing: {}", "2: node.tracing.endpoint: is missing; add `endpoint: ...`"),
        ("node:\n  tracing:\n    endpoint: ftp://c", "3: node.tracing.endpoint: 'ftp://c' is not a valid address"),
        ("node:\n  tracing:\n    endpoint: http://u:p@c", "3: node.tracing.endpoint: '***@c' is not a valid address"),
        ("node:\n  tracing:\n    endpoint: http://c\n    sample: 2", "4: node.tracing.sample: is 2; must be at most 1"),
        ("node:\n  tracing:\n    endpoint: http://c\n    link: http://x/", "4: node.tracing.link: 'http://x/' is not"),
        ("node:\n  tracing:\n    endpoint: http://c\n    sampel: 1", "4: node.tracing.sampel: is not a known key; "),
    ],
)
def test_mistakes_are_named_by_line(yaml: str, said: str) -> None:
    """Each with the key and what to write; a password is not shown."""
    with pytest.raises(ConfigError) as error:
        loads(yaml)
    assert said in str(error.value)
    assert "u:p" not in str(error.value)


@pytest.mark.parametrize(
    ("yaml", "keys"),
    [
        ("node: {tracing: {endpoint: 'http://c', sampel: 1}}", "the keys are endpoint, service, sample"),
        ("tls: {producer: {prot: 1}}", "the keys are port, host"),
    ],
)
def test_unknown_key_of_an_optional_mapping_is_answered_with_its_own_keys(yaml: str, keys: str) -> None:
    """Not with those of the section around it."""
    assert keys in refused(yaml)


def test_bounds_of_an_optional_mapping_name_its_own_default() -> None:
    """Not what leaving the whole mapping out means."""
    problem = refused("node: {tracing: {endpoint: 'http://c', queue: 1}}")
    assert "nothing is traced" not in problem
    assert "(default 4096)" in problem
