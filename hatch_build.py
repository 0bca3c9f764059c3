"""Hatchling's hook: a wheel, or an editable installation, gets the compiled accelerators where they can be compiled."""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AcceleratorsHook(BuildHookInterface[Any]):
    """Compiles in place and takes what came of it into the wheel, which then is one for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; without a compiler the wheel is pure Python."""
        if version != "editable":
            self._add_commit(build_data)
        sys.path.insert(0, self.root)
        from compile_accelerators import ROOT, NotCompiled, build

        try:
            built = [path.relative_to(ROOT).as_posix() for path in build()]
        except NotCompiled as error:
            self.app.display_warning(f"accelerators not compiled, the node runs in Python: {error}")
            return
        build_data["artifacts"] += built
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _add_commit(self, build_data: dict[str, Any]) -> None:
        """Put the commit into the wheel, unless it is the one of the release's tag."""
        module = runpy.run_path(f"{self.root}/pyddmq/version.py")
        commit = module["commit_of"](Path(self.root))
        if not commit or self._is_released():
            return
        file = Path(tempfile.mkdtemp(prefix="pyddmq-")) / module["COMMIT_FILE"]
        file.write_text(commit, encoding="utf-8")
        build_data["force_include"][str(file)] = f"pyddmq/{file.name}"

    def _is_released(self) -> bool:
        tag = ["git", "describe", "--exact-match", "--match", f"v{self.metadata.version}", "HEAD"]
        try:
            return subprocess.run(tag, cwd=self.root, capture_output=True, check=False).returncode == 0
        except OSError:
            return False
