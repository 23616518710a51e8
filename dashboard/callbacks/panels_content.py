"""What each panel holds: rows joined with figures and pages, without Dash's callback machinery."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from collector.store.records.run import ENDED
from dashboard import queries
from dashboard.backstage import STORE_ERRORS, Backstage
from dashboard.culprits import standings
from dashboard.figures import heatmap, sample_line, step_time
from dashboard.figures.heatmap import StepMark, ratio_heatmap
from dashboard.figures.host_metrics import host_metrics, worst_nodes
from dashboard.figures.notice import notice
from dashboard.figures.palette import Palette
from dashboard.pages.incident import incident_body, incident_records
from dashboard.pages.parts import banner, run_facts
from dashboard.pages.run import HOSTS_HEIGHT, TABLE_ROWS, incident_list, shape, standing_rows
from dashboard.pages.runs import runs_table
from dashboard.queries import IncidentRow, RunRow
from dashboard.step_series import SAMPLES
from dashboard.verdict import verdict_on

# A rank that finished none of these is no longer counted as covered; fewer would flicker with each late batch.
REPORTING_STEPS = 10
NO_STEPS = "No rank has finished a step yet.\nSteps show here as soon as the optimizer has stepped."
NO_SAMPLE = "No {name} reported.\nCall flightwatch.log({name}=…) in the training loop."
NO_HOSTS = "No host telemetry yet.\nThe forwarder on each node sends it every few seconds."


class Panels:
    """The content of the panels, made from the stores."""

    def __init__(self, stage: Backstage) -> None:
        self._stage = stage

    def runs(self) -> Any:
        """Return the table of runs."""
        return runs_table(queries.list_runs(self._stage.engine), self._stage.now())

    def head(self, run_id: str) -> tuple[Any, Any, Any]:
        """Return the facts, the banner and the incidents of a run."""
        stage, run = self._stage, self._run(run_id)
        now = stage.now()
        incidents = queries.list_incidents(stage.engine, run_id)
        topology = stage.cache.topology(run_id)
        return (
            run_facts(run, now, reporting=self._reporting(run), shape=shape(topology)),
            banner(verdict_on(run, incidents, now=now)),
            incident_list(incidents, queries.list_explanations(stage.engine, run_id), now),
        )

    def ratios(self, run_id: str, n_steps: int, colours: Palette) -> tuple[go.Figure, list[dict[str, Any]], str]:
        """Return the heatmap, the culprit table and the note above it."""
        run = self._run(run_id)
        view = self._stage.window(run, n_steps)
        if not len(view.steps):
            return notice(NO_STEPS, colours, height=heatmap.HEIGHT), [], ""
        opened = [one for one in queries.list_incidents(self._stage.engine, run_id) if one.is_open]
        figure = ratio_heatmap(
            view.topology,
            view.steps,
            view.log_ratios,
            colours,
            key=f"{run_id}/{n_steps}",
            marked_ranks=[rank for one in opened for rank in one.ranks],
            marked_steps=[StepMark(one.first_step, "since") for one in opened[:3]],
        )
        total = len(view.topology.ranks)
        note = f"first {TABLE_ROWS} of {total:,} ranks" if total > TABLE_ROWS else f"{total:,} ranks"
        return figure, standing_rows(standings(view.topology, view.log_ratios, most=TABLE_ROWS)), note

    def series(self, run_id: str, colours: Palette) -> tuple[go.Figure, ...]:
        """Return step time, loss and gradient norm."""
        run = self._run(run_id)
        memory = self._stage.cache.of(run_id).series
        times = memory.step_time(last_step=run.last_step, n_ranks=run.ranks)
        if len(times.steps):
            marks = [StepMark(one.first_step, "since") for one in self._opened(run_id)]
            figures = [step_time.step_time(times, colours, key=run_id, marks=marks)]
        else:
            figures = [notice(NO_STEPS, colours, height=step_time.HEIGHT)]
        for name in SAMPLES:
            series = memory.sample(name, last_step=run.last_step, n_ranks=run.ranks)
            if len(series.steps):
                figures.append(sample_line.sample_line(series, colours, key=run_id))
            else:
                figures.append(notice(NO_SAMPLE.format(name=name), colours, height=sample_line.HEIGHT))
        return tuple(figures)

    def hosts(self, run_id: str, colours: Palette) -> go.Figure:
        """Return the small multiples of host telemetry."""
        run = self._run(run_id)
        nodes = sorted(set(self._stage.cache.topology(run_id).nodes))
        until_ns = int(run.last_seen_at.timestamp() * 1e9)
        panels = self._stage.cache.of(run_id).hosts.panels(nodes, until_ns=until_ns)
        if not panels:
            return notice(NO_HOSTS, colours, height=HOSTS_HEIGHT)
        accused = [node for one in self._opened(run_id) for node in one.nodes]
        return host_metrics(panels, worst_nodes(panels, accused), colours, key=run_id)

    def incident(self, incident_id: str) -> tuple[Any, Any]:
        """Return an incident's body and its records."""
        engine, incident = self._stage.engine, self._incident(incident_id)
        findings, deliveries = queries.list_findings(engine, incident_id), queries.list_deliveries(engine, incident_id)
        run, now = self._run(incident.run_id), self._stage.now()
        line = run_facts(run, now, reporting=self._reporting(run))
        return incident_body(incident, line), incident_records(incident, findings, deliveries, now)

    def around(self, incident_id: str, colours: Palette) -> go.Figure:
        """Return the heatmap around an incident, its ranks on top and marked."""
        incident = self._incident(incident_id)
        view = self._stage.around(incident)
        if not len(view.steps):
            return notice("The steps around this incident are no longer kept.", colours, height=heatmap.HEIGHT)
        return ratio_heatmap(
            view.topology,
            view.steps,
            view.log_ratios,
            colours,
            key=incident_id,
            marked_ranks=incident.ranks,
            marked_steps=_marks(incident),
        )

    def _opened(self, run_id: str) -> list[IncidentRow]:
        return [one for one in queries.list_incidents(self._stage.engine, run_id) if one.is_open]

    def _reporting(self, run: RunRow) -> int | None:
        """Return how many ranks finished one of the newest steps, None where that cannot be told."""
        if run.state == ENDED or run.last_step < 0:
            return None
        try:
            return self._stage.window(run, REPORTING_STEPS).reporting
        except STORE_ERRORS:
            return None  # the figures of the same page say why

    def _run(self, run_id: str) -> RunRow:
        run = queries.find_run(self._stage.engine, run_id)
        if run is None:
            raise LookupError(f"run {run_id!r} is gone")
        return run

    def _incident(self, incident_id: str) -> IncidentRow:
        incident = queries.find_incident(self._stage.engine, incident_id)
        if incident is None:
            raise LookupError(f"incident {incident_id!r} is gone")
        return incident


def _marks(incident: IncidentRow) -> list[StepMark]:
    marks = [StepMark(incident.first_step, "since")]
    if incident.opened_step > incident.first_step:
        marks.append(StepMark(incident.opened_step, "opened"))
    if incident.resolved_step is not None:
        marks.append(StepMark(incident.resolved_step, "resolved"))
    return marks
