"""The verb `diagnose`: the detectors on a file or folder, without any server."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from analytics.findings import Finding, Input, Report
from analytics.trace_diagnosis import diagnose_trace
from collector.ingest.kinds import Found, read_path

HELP = "run the detectors on a file or folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare PATH and --json."""
    parser.add_argument("path", metavar="PATH", type=Path, help="a recording, or a folder of recordings")
    parser.add_argument("--json", action="store_true", help="print one JSON object in schema flightwatch.findings/1")
    parser.epilog = "Exit code: 0 nothing found, 1 something found (an imbalance counts too), 2 bad input."


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 when it holds a finding of any kind, else 0."""
    found = read_path(args.path)
    reports = [diagnose_trace(recording) for _, recording in found.recordings]
    report = reports[0] if len(reports) == 1 else _joined(args.path, reports)
    report.coverage["skipped_files"] = [str(path) for path in found.skipped]
    print(json.dumps(_plain(report.to_json()), allow_nan=False) if args.json else _text(report, found))
    return 1 if report.findings else 0


def _joined(path: Path, reports: list[Report]) -> Report:
    """Return one report on several recordings; each finding's id and summary say which one it is from."""
    findings = tuple(
        replace(finding, id=f"{report.input.run}/{finding.id}", summary=f"{report.input.run}: {finding.summary}")
        for report in reports
        for finding in report.findings
    )
    return Report(
        input=Input(
            kind="folder",
            run=str(path),
            ranks=sum(report.input.ranks for report in reports),
            steps=(min(report.input.steps[0] for report in reports), max(report.input.steps[1] for report in reports)),
        ),
        findings=findings,
        coverage={"recordings": {report.input.run: report.coverage for report in reports}},
    )


def _plain(value: Any) -> Any:
    """Return JSON types with numbers that JSON cannot hold (NaN, infinity) as null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(report: Report, found: Found) -> str:
    seen = report.input
    ranks = f"{seen.ranks} rank{'s' if seen.ranks != 1 else ''}"
    head = f"{seen.run}: {ranks}, steps {seen.steps[0]} to {seen.steps[1]}"
    unjudged = _unjudged(report)
    lines = [line for finding in report.findings for line in _finding_lines(finding)]
    if lines:
        lines.append(f"Looked at {head}.")
    elif unjudged:
        lines.append(f"Nothing was found in {head}, but not everything could be judged.")
    else:
        lines.append(f"Nothing wrong was found in {head}.")
    lines += [f"Insufficient evidence: {reason}." for reason in unjudged]
    lines += [f"Passed over {path}: unknown file kind." for path in found.skipped]
    return "\n".join(lines)


def _unjudged(report: Report) -> list[str]:
    coverage = report.coverage
    if "recordings" not in coverage:
        return list(coverage["insufficient_evidence"])
    parts = coverage["recordings"].items()
    return [f"{run}: {reason}" for run, part in parts for reason in part["insufficient_evidence"]]


def _finding_lines(finding: Finding) -> list[str]:
    lines = [
        f"{finding.severity.upper()} {finding.kind} ({finding.cause}): {finding.summary}.",
        f"  Since step {finding.first_step}; confidence {finding.confidence:.2f}; "
        f"{finding.cost.wasted_accelerator_hours:.2f} accelerator-hours lost on the traced ranks.",
    ]
    lines += [f"  Why: {evidence.text}." for evidence in finding.evidence]
    lines += [f"  Ruled out: {text}." for text in finding.ruled_out]
    return [*lines, f"  Next: {finding.next}."]
