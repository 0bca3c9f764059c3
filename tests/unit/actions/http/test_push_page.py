"""docs/actions-push.md: its options are the model's, and its three receivers know a signature."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from actions.http.options import AsyncHttpOptions, BreakerOptions, CallbackOptions, SignatureOptions, TlsOptions
from actions.http.signature import sign
from tests.conftest import need_program
from tools.numbers import without_numbers

PAGE = (Path(__file__).parents[4] / "docs" / "actions-push.md").read_text(encoding="utf-8")
PARTS: dict[str, type[BaseModel]] = {
    "breaker": BreakerOptions,
    "callback": CallbackOptions,
    "signature": SignatureOptions,
    "tls": TlsOptions,
}
WAYS = {
    "python": ("python3", [], "check.py"),
    "go": ("go", ["run"], "check.go"),
    "javascript": ("node", [], "check.js"),
}


def test_page_has_every_option_with_its_meaning() -> None:
    """And none besides."""
    wanted: dict[str, str | None] = {}
    for name, field in AsyncHttpOptions.model_fields.items():
        if name in PARTS:
            wanted |= {f"{field.alias}.{each.alias}": each.description for each in PARTS[name].model_fields.values()}
        else:
            wanted[str(field.alias)] = field.description
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|$", PAGE.partition("## Options")[2], re.MULTILINE)
    assert dict(rows) == {name: without_numbers(text or "") for name, text in wanted.items()}


@pytest.mark.parametrize("language", ["python", "javascript", pytest.param("go", marks=pytest.mark.long)])
def test_receiver_of_the_page_knows_the_signature(language: str, tmp_path: Path) -> None:
    """The right one, and not that of another body."""
    program, arguments, file = WAYS[language]
    path = need_program(program)
    code = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    (tmp_path / file).write_text(code[1])
    body = b'{"n": 1}\n\xff'
    value = sign(b"s3cret", time_s=1_700_000_000, key_id="2026-a", topic="orders", query="a=1&b=c+d", body=body)
    environment = {**os.environ, "PUSH_SECRET": "s3cret", "GOCACHE": str(tmp_path / "go"), "GOFLAGS": "-mod=mod"}

    def code_for(given: bytes) -> int:
        command = [path, *arguments, str(tmp_path / file), "1700000000", "2026-a", "orders", "a=1&b=c+d", value]
        return subprocess.run(
            command, input=given, env=environment, cwd=tmp_path, timeout=300, capture_output=True, check=False
        ).returncode

    assert code_for(body) == 0
    assert code_for(body + b" ") == 1
