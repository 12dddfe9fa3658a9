"""The command `slm-lab doctor`: its output and exit codes."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.doctor.diagnosis import diagnose, training_findings
from slm_lab.doctor.finding import Finding
from slm_lab.doctor.history import read_histories
from slm_lab.records.run_record import RunRecord


def examine_machine(data: Path, as_json: bool) -> None:
    """Prints what the lab finds on this machine."""
    from slm_lab.doctor.machine import examine

    parts = examine(data)
    if as_json:
        print_json([part._asdict() for part in parts])
        return
    header = ("part", "found", "to do")
    print_table(
        console=wide_console(), title="", header=header, rows=parts, left=header
    )


def examine_run(
    run: str, data: Path, imports: Sequence[str], trust: bool, as_json: bool
) -> None:
    """Prints the findings about a run. Raises LabError."""
    where, findings, unseen = diagnose(run, data, imports, trust)
    if as_json:
        print_json([finding.document() for finding in findings])
        if unseen is not None:
            print(f"the agent was not looked at: {unseen}", file=sys.stderr)
        return
    print_findings(wide_console(), where, findings, unseen)


def print_findings(
    console: Console, where: str, findings: Sequence[Finding], unseen: str | None
) -> None:
    """Prints the findings about the run `where`; `unseen` is why its agent was not
    looked at."""
    print_line(console, where)
    for number, finding in enumerate(findings, 1):
        print_finding(console, finding, f"{number}. ")
    if not findings:
        print_line(console, "nothing wrong found")
    if unseen is not None:
        print_line(console, f"the agent was not looked at: {unseen}", "dim")


def print_first_finding(console: Console, record: RunRecord) -> bool:
    """Prints the most serious finding about a training; returns whether there is any.
    Raises UsageError for damaged rows."""
    findings = training_findings(record, read_histories(record))
    finding = next(findings, None)
    if finding is not None:
        print_finding(console, finding, "doctor: ")
    return finding is not None


def print_finding(console: Console, finding: Finding, begin: str) -> None:
    """Prints a finding in three lines."""
    indent = " " * len(begin)
    print_line(console, f"{begin}{finding.what}", "yellow")
    print_line(console, f"{indent}seen: {finding.evidence}")
    print_line(console, f"{indent}try: {finding.advice}")
