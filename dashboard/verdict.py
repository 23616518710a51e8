"""The verdict that heads a run's page: what, why, what next; and honest words where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from collector.store.records.run import ENDED
from dashboard.queries import IncidentRow, RunRow
from dashboard.wording import clock, ratio, sentence, words

# The collector marks a run as heard about once a second; several missed marks are no longer chance.
SILENT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    """`level` is critical, warning, ok, silent, ended or waiting; `facts` are short pairs (name, text)."""

    level: str
    label: str
    headline: str
    why: str = ""
    next: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    incident_id: str = ""
    others: tuple[IncidentRow, ...] = ()


def verdict_on(run: RunRow, incidents: Sequence[IncidentRow], *, now: datetime) -> Verdict:
    """Return the verdict on `run`; the dearest open incident speaks, the other open ones are listed."""
    opened = [incident for incident in incidents if incident.is_open]
    if opened:
        return verdict_of(opened[0], others=tuple(opened[1:]))
    if run.state == ENDED:
        return _ended(run, incidents)
    silent = (now - run.last_seen_at).total_seconds()
    if silent > SILENT_SECONDS:
        return Verdict(
            level="silent",
            label="No data",
            headline="This run says nothing any more, and silence is not health.",
            why=f"The last record came at {clock(run.last_seen_at)}; the run has not ended.",
            next="See whether its processes still run, and whether the nodes reach the collector.",
        )
    if run.last_step < 0:
        return Verdict(
            level="waiting",
            label="Waiting",
            headline="Ranks have reported, but none has finished a step yet.",
            next="Steps are known by optimizer steps, or by `with flightwatch.step():` in the training loop.",
        )
    if run.revision == 0:
        return Verdict(
            level="waiting",
            label="Not looked at",
            headline="Steps arrive, but no detector has looked at them yet.",
            next="Detectors run in `flightwatch analytics`; `flightwatch up` starts it too.",
        )
    return Verdict(
        level="ok",
        label="OK",
        headline="No rank is slower than its peers.",
        why=f"{run.ranks:,} ranks compared step by step with the others of their role, up to step {run.last_step:,}.",
    )


def verdict_of(incident: IncidentRow, *, others: tuple[IncidentRow, ...] = ()) -> Verdict:
    """Return the verdict that an incident carries."""
    finding = incident.finding
    evidence = [str(item.get("text", "")) for item in finding.get("evidence", ())]
    loud = "critical" if incident.severity == "critical" else "warning"
    return Verdict(
        level=loud if incident.is_open else "ended",
        label=f"{words(incident.kind)} · {words(incident.cause)}" + ("" if incident.is_open else " · resolved"),
        headline=sentence(incident.summary),
        why=" ".join(sentence(text.rstrip(".")) + "." for text in evidence[:2] if text),
        next=sentence(str(finding.get("next", ""))),
        facts=_facts(incident),
        incident_id=incident.id,
        others=others,
    )


def _facts(incident: IncidentRow) -> tuple[tuple[str, str], ...]:
    cost = incident.finding.get("cost") or {}
    hours = float(cost.get("wasted_accelerator_hours") or 0)
    facts = [
        ("since", f"step {incident.first_step:,}"),
        ("opened", clock(incident.opened_at)),
        ("confidence", f"{incident.confidence:.0%}"),
        ("job slowdown", ratio(incident.slowdown)),
    ]
    if hours:
        facts.append(("wasted", f"{hours:,.2f} accelerator-hours"))
    if incident.resolved_at:
        facts.append(("resolved", f"step {incident.resolved_step:,}" if incident.resolved_step else "yes"))
    return tuple(facts)


def _ended(run: RunRow, incidents: Sequence[IncidentRow]) -> Verdict:
    count = len(incidents)
    return Verdict(
        level="ended",
        label="Ended",
        headline=f"The run ended after step {run.last_step:,}, with "
        + ("no incident." if count == 0 else "one incident." if count == 1 else f"{count} incidents."),
        why=f"It ended at {clock(run.ended_at)}.",
    )
