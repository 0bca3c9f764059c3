"""`python -m tests.fuzz`: search every target, or those named, for some seconds each, guided by coverage.

Each target runs in a process of its own. New inputs that reach more code gather in --work; what breaks a promise or
hangs is kept under tests/fuzz/findings, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.tried import tried

SECONDS_PER_INPUT = 10
MEMORY_MB = 2048


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    if sys.argv[1:2] == ["--inside"]:
        _search(sys.argv[2], sys.argv[3:])
        return 0
    options = _parser().parse_args()
    from tests.fuzz.targets import CORPUS, FINDINGS, TARGETS

    failed = []
    for name in options.targets or TARGETS:
        work = Path(options.work) / name
        findings = FINDINGS / name
        for folder in (work, findings):
            folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", "--inside", name, str(work), str(CORPUS / name)]
        if any(findings.iterdir()):
            command.append(str(findings))
        command += [
            f"-max_total_time={options.seconds}",
            f"-timeout={SECONDS_PER_INPUT}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={findings}/",
            "-max_len=16384",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        tried("fuzz", "any bytes", operations=[name], states=["searched"])
        before = set(findings.iterdir())
        run = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False)
        found = sorted(path.name for path in set(findings.iterdir()) - before)
        print(f"{name}: {_figures(run.stderr)}{', found ' + ', '.join(found) if found else ''}", flush=True)
        if run.returncode:
            failed.append(name)
            print(run.stderr[-4000:], file=sys.stderr)
    return 1 if failed else 0


def _figures(text: str) -> str:
    """Executions and coverage, as libFuzzer's last lines say them."""
    runs = re.findall(r"stat::number_of_executed_units:\s+(\d+)", text)
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    reached = (
        f"{coverage[-1][0]} branches, {coverage[-1][1]} features, {coverage[-1][2]} inputs" if coverage else "none"
    )
    return f"{int(runs[-1]) if runs else 0:,} runs, {reached}"


def _search(name: str, arguments: list[str]) -> None:
    """Search one target until libFuzzer ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is missing: make fuzz installs it (pip install -e '.[fuzz]')")
    with atheris.instrument_imports(include=["proxy", "broker", "upstream", "conf", "actions"]):
        from tests.fuzz.targets import TARGETS
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("targets", nargs="*", help="what to search; all of them when absent")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--work", default=".fuzz", help="folder for inputs that reached more code")
    return parser


if __name__ == "__main__":
    sys.exit(main())
