"""The life of incidents: when one opens, what keeps it one, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.findings import Cost, Finding
from analytics.incidents import lifecycle
from analytics.incidents.lifecycle import Event, Look, Opened, Resolved, Rules, Track, Updated, advance

RULES = Rules(open_after_steps=3, open_after_looks=2, resolve_after_steps=20, resolve_after_looks=2)
NODES = {f"n{i}": 8 for i in range(4)}


def finding(entity: str = "rank:2", *, kind: str = "slow_rank", cause: str = "compute", **changes: object) -> Finding:
    name, _, number = entity.partition(":")
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    if name == "rank":
        ranks, nodes = (int(number),), (f"n{int(number) // 8}",)
    elif name == "node":
        first = 8 * int(number.removeprefix("n"))
        ranks, nodes = tuple(range(first, first + 8)), (number,)
    base = Finding(
        id="f",
        kind=kind,
        cause=cause,
        ranks=ranks,
        nodes=nodes,
        entity=entity,
        severity="warning",
        first_step=0,
        last_step=0,
        confidence=0.9,
        summary=f"{entity} is slow",
        next="look at it",
        detector="test/1",
        cost=Cost(slowdown=1.5),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names of fields


class Story:
    """A run told look by look."""

    def __init__(self, node_sizes: dict[str, int] | None = None) -> None:
        self.tracks: tuple[Track, ...] = ()
        self.events: list[Event] = []
        self.node_sizes = node_sizes or {}
        numbers: Iterator[int] = count(1)
        self.new_id: Callable[[], str] = lambda: f"I{next(numbers)}"

    def look(self, step: int, *findings: Finding) -> tuple[Event, ...]:
        self.tracks, events = advance(
            self.tracks, Look(step, findings, self.node_sizes), new_id=self.new_id, rules=RULES
        )
        self.events.extend(events)
        return events

    def looks(self, steps: Iterable[int], *findings: Finding) -> None:
        for step in steps:
            self.look(step, *findings)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def test_opens_once_a_suspect_has_held_for_the_steps_and_looks_asked() -> None:
    story = Story()

    assert story.look(100, finding()) == ()
    assert story.look(101, finding()) == ()
    events = story.look(103, finding())

    assert [type(event) for event in events] == [Opened]
    assert events[0].track.opened_step == 103


def test_one_look_never_opens_however_many_steps_it_jumps() -> None:
    story = Story()

    story.look(500, finding())

    assert story.events == []


def test_a_suspect_that_is_gone_before_it_opened_starts_afresh() -> None:
    story = Story()

    for step in range(0, 60, 2):
        story.look(step, *([finding()] if step % 4 == 0 else []))

    assert story.events == []


def test_resolves_after_the_hold_and_keeps_the_last_step_in_which_it_was_seen() -> None:
    story = Story()
    story.looks(range(100, 200, 2), finding())
    story.looks(range(200, 300, 2))

    (resolved,) = story.of(Resolved)

    assert isinstance(resolved, Resolved)
    assert (resolved.reason, resolved.step, resolved.track.last_seen_step) == (lifecycle.ABSENT, 218, 198)
    assert story.tracks == ()


def test_a_flapping_suspect_stays_one_incident() -> None:
    story = Story()
    story.looks(range(100, 110), finding())

    for begin in range(110, 400, 20):
        story.looks(range(begin, begin + 15))
        story.looks(range(begin + 15, begin + 20), finding())

    assert len(story.of(Opened)) == 1
    assert story.of(Resolved) == []


def test_a_fault_of_a_hundred_steps_gives_one_incident_within_the_run() -> None:
    story = Story()

    for step in range(0, 300, 2):
        story.look(step, *([finding()] if 110 <= step < 225 else []))

    (opened,) = story.of(Opened)
    (resolved,) = story.of(Resolved)
    assert opened.track.opened_step <= 140
    assert isinstance(resolved, Resolved)
    assert 200 < resolved.step < 300


def test_a_second_fault_of_the_same_rank_is_a_second_incident() -> None:
    story = Story()
    for begin in (0, 100):
        story.looks(range(begin, begin + 20), finding())
        story.looks(range(begin + 20, begin + 60))

    assert [event.track.id for event in story.of(Opened)] == ["I1", "I2"]
    assert [event.track.id for event in story.of(Resolved)] == ["I1", "I2"]


def test_ranks_that_are_most_of_a_node_open_one_incident_on_the_node() -> None:
    story = Story(NODES)

    story.looks(range(6), *(finding(f"rank:{rank}") for rank in range(8, 14)))

    (opened,) = story.of(Opened)
    assert opened.track.finding.entity == "node:n1"
    assert opened.track.finding.ranks == (8, 9, 10, 11, 12, 13)
    assert opened.track.finding.summary.startswith("6 of 8 ranks of node n1 suffer alike")


def test_two_of_eight_ranks_do_not_accuse_their_node() -> None:
    story = Story(NODES)

    story.looks(range(6), finding("rank:8"), finding("rank:9"))

    assert sorted(event.track.finding.entity for event in story.of(Opened)) == ["rank:8", "rank:9"]


def test_ranks_of_the_only_node_are_never_folded_into_it() -> None:
    story = Story({"n0": 4})

    story.looks(range(6), finding("rank:0"), finding("rank:1"))

    assert sorted(event.track.finding.entity for event in story.of(Opened)) == ["rank:0", "rank:1"]


def test_a_culprit_that_grows_from_rank_to_node_is_updated_not_doubled() -> None:
    story = Story(NODES)
    story.looks(range(6), finding("rank:8"))

    events = story.look(6, finding("node:n1"))

    assert [type(event) for event in events] == [Updated]
    assert isinstance(events[0], Updated)
    assert events[0].is_shifted
    assert events[0].track.id == "I1"
    assert events[0].track.finding.entity == "node:n1"


def test_a_node_takes_up_the_open_incidents_of_its_ranks() -> None:
    story = Story(NODES)
    story.looks(range(6), finding("rank:8"), finding("rank:9"))

    story.look(6, finding("node:n1"))

    (merged,) = story.of(Resolved)
    assert isinstance(merged, Resolved)
    assert (merged.reason, merged.into) == (lifecycle.MERGED, "I1")
    assert [track.finding.entity for track in story.tracks] == ["node:n1"]


def test_one_rank_of_an_accused_node_keeps_the_node_until_it_alone_is_left_for_good() -> None:
    story = Story(NODES)
    story.looks(range(6), finding("node:n1"))

    story.looks(range(6, 25), finding("rank:8"))
    kept = story.tracks[0].finding.entity
    story.looks(range(25, 28), finding("rank:8"))

    assert kept == "node:n1"
    assert [track.finding.entity for track in story.tracks] == ["rank:8"]
    assert len(story.of(Opened)) == 1


def test_a_changed_cause_shifts_the_incident_and_is_no_second_one() -> None:
    story = Story()
    story.looks(range(6), finding(cause="compute"))

    events = story.look(6, finding(cause="input"))

    assert [(type(event), getattr(event, "is_shifted", None)) for event in events] == [(Updated, True)]


def test_two_kinds_on_one_rank_are_two_incidents() -> None:
    story = Story()

    story.looks(range(6), finding(), finding(kind="hardware", cause="thermal"))

    assert len(story.of(Opened)) == 2


def test_an_innocent_explanation_becomes_a_note_that_is_neither_updated_nor_resolved() -> None:
    story = Story()
    innocent = finding("job", kind="imbalance", cause="sequence_length", severity="info")

    story.looks(range(30), innocent)
    story.looks(range(30, 60))

    assert [type(event) for event in story.events] == [Opened]
    assert story.events[0].track.is_note
    assert story.tracks == ()


def test_two_innocent_causes_of_the_whole_job_are_two_notes() -> None:
    story = Story()
    causes = ("sequence_length", "stage_partition")

    story.looks(range(6), *(finding("job", kind="imbalance", cause=cause, severity="info") for cause in causes))

    assert sorted(event.track.finding.cause for event in story.of(Opened)) == sorted(causes)


def test_an_imbalance_worth_a_warning_opens_an_incident_that_names_no_machine() -> None:
    story = Story()

    story.looks(range(6), finding("stage:3", kind="imbalance", cause="stage_partition"))

    (opened,) = story.of(Opened)
    assert (opened.track.finding.ranks, opened.track.finding.nodes) == ((), ())


def test_the_end_of_the_run_resolves_what_is_open_and_only_that() -> None:
    story = Story()
    story.looks(range(6), finding("rank:2"), finding("job", kind="imbalance", severity="info"))
    story.look(6, finding("rank:2"), finding("rank:30"))

    events = lifecycle.end(story.tracks, 7)

    assert [(event.track.finding.entity, event.reason) for event in events if isinstance(event, Resolved)] == [
        ("rank:2", lifecycle.RUN_ENDED)
    ]


def test_a_job_that_resumed_from_a_checkpoint_still_resolves() -> None:
    story = Story()
    story.looks(range(500, 510), finding())

    story.looks(range(400, 425))

    (resolved,) = story.of(Resolved)
    assert isinstance(resolved, Resolved)
    assert resolved.step == 420


ENTITIES = st.sampled_from(["rank:0", "rank:1", "rank:8", "rank:9", "node:n0", "node:n1", "job", "stage:1"])
SUSPECTS = st.builds(
    lambda entity, kind, cause, severity: finding(entity, kind=kind, cause=cause, severity=severity),
    ENTITIES,
    st.sampled_from(["slow_rank", "imbalance"]),
    st.sampled_from(["compute", "input"]),
    st.sampled_from(["warning", "critical", "info"]),
)
LOOKS = st.lists(st.tuples(st.integers(-30, 30), st.lists(SUSPECTS, max_size=6)), max_size=40)


@given(LOOKS)
@settings(max_examples=150, deadline=None)
def test_never_two_open_incidents_of_one_culprit_and_none_resolved_twice(
    looks: list[tuple[int, list[Finding]]],
) -> None:
    story = Story(NODES)
    step = 100

    for moved, findings in looks:
        step = max(0, step + moved)
        story.look(step, *findings)
        firing = [(t.finding.kind, t.finding.entity) for t in story.tracks if t.is_open and not t.is_note]
        assert len(firing) == len(set(firing))
    story.events.extend(lifecycle.end(story.tracks, step))

    opened = [event.track.id for event in story.of(Opened) if not event.track.is_note]
    resolved = [event.track.id for event in story.of(Resolved)]
    assert len(opened) == len(set(opened))
    assert sorted(opened) == sorted(resolved)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_findings_in_a_look_changes_nothing(order: int) -> None:
    story = Story(NODES)
    findings = [finding("rank:8"), finding("node:n1"), finding("rank:30")][::order]

    story.looks(range(6), *findings)

    assert [track.finding.entity for track in story.tracks] == ["node:n1", "rank:30"]
