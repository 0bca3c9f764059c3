"""Hatchling's hook: a wheel, or an editable installation, gets the compiled accelerators where they can be compiled."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AcceleratorsHook(BuildHookInterface[Any]):
    """Compiles in place and takes what came of it into the wheel, which then is one for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; without a compiler the wheel is pure Python."""
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
