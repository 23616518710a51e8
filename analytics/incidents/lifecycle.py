"""The life of incidents as a pure state machine: (tracks, look) -> (tracks, events). Time is counted in steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from analytics.findings import INFO, Finding
from analytics.incidents.grouping import is_about_the_same, suspects_of, weight

ABSENT = "absent"
RUN_ENDED = "run_ended"
MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Rules:
    """How long a suspect must hold before anyone is told, and be gone before it is over.

    Detectors test persistence inside their own window, so opening waits only for a second opinion. Resolving waits
    as long as a live window is (40 steps): until then old evidence leaves it piece by piece, and a culprit at the edge
    of the threshold comes and goes. With 20 steps, a rank 1.5 times slow among four noisy ones gave two incidents.
    """

    open_after_steps: int = 3
    open_after_looks: int = 2
    resolve_after_steps: int = 40
    resolve_after_looks: int = 2


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in one window that ends with `step`.

    `node_sizes` tells how many ranks stand on each node; `blind` names detectors that failed: what they would have said
    is unknown, and must not pass for health.
    """

    step: int
    findings: tuple[Finding, ...]
    node_sizes: Mapping[str, int] = field(default_factory=dict)
    blind: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Track:
    """A suspect over time. `id` is empty while pending; `finding` is the newest one that names its culprit."""

    finding: Finding
    first_seen_step: int
    last_seen_step: int
    named_step: int  # newest step in which the culprit itself was named, and not only a part of it
    first_step: int
    looks: int = 1
    missed_looks: int = 0
    id: str = ""
    opened_step: int = -1

    @property
    def is_open(self) -> bool:
        """Return whether it has been told."""
        return self.id != ""

    @property
    def is_note(self) -> bool:
        """Return whether it is an innocent explanation."""
        return self.finding.severity == INFO


@dataclass(frozen=True, slots=True)
class Opened:
    """A suspect has held long enough: an incident, or a note where it is innocent."""

    track: Track


@dataclass(frozen=True, slots=True)
class Updated:
    """An open incident was seen again; `is_shifted` where culprit, cause or severity changed."""

    track: Track
    is_shifted: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """An incident is over; `into` names the incident that took it up where the reason is `merged`."""

    track: Track
    step: int
    reason: str
    into: str = ""


Event = Opened | Updated | Resolved


def advance(
    tracks: tuple[Track, ...], look: Look, *, new_id: Callable[[], str], rules: Rules | None = None
) -> tuple[tuple[Track, ...], tuple[Event, ...]]:
    """Return the tracks after one look and what happened in it.

    Args:
        tracks: the tracks after the look before.
        look: the findings of now. Its step may be lower than before: a job that resumed from a checkpoint goes back.
        new_id: called once for each incident or note that opens.
        rules: how long to wait.
    """
    rules = rules or Rules()
    before = [_rewound(track, look.step) for track in tracks]
    homes, absorbed, newcomers = _assign(before, suspects_of(look.findings, look.node_sizes))
    after: list[Track] = []
    events: list[Event] = []
    for index, track in enumerate(before):
        if index in absorbed:
            continue
        named = homes.get(index)
        moved, happened = _seen(track, named, look, new_id, rules) if named else _missed(track, look, rules)
        after.extend([moved] if moved else [])
        events.extend(happened)
        for taken in (before[child] for child, home in absorbed.items() if home == index):
            if taken.is_open and not taken.is_note:
                events.append(Resolved(taken, look.step, MERGED, moved.id if moved else ""))
    for finding in newcomers:
        pending = Track(finding, look.step, look.step, look.step, finding.first_step)
        moved, happened = _opened_if_due(pending, look, new_id, rules)
        after.append(moved)
        events.extend(happened)
    return tuple(after), tuple(events)


def end(tracks: tuple[Track, ...], step: int) -> tuple[Event, ...]:
    """Return what happens to open incidents when their run ends after `step`."""
    return tuple(Resolved(track, step, RUN_ENDED) for track in tracks if track.is_open and not track.is_note)


def _rewound(track: Track, step: int) -> Track:
    if step >= track.last_seen_step:
        return track
    return replace(
        track,
        last_seen_step=step,
        first_seen_step=min(track.first_seen_step, step),
        named_step=min(track.named_step, step),
    )


def _assign(
    tracks: list[Track], suspects: tuple[Finding, ...]
) -> tuple[dict[int, list[Finding]], dict[int, int], list[Finding]]:
    """Return track -> its suspects, absorbed track -> the track that takes it up, and suspects without a track."""
    homes: dict[int, list[Finding]] = {}
    absorbed: dict[int, int] = {}
    newcomers: list[Finding] = []
    for suspect in suspects:
        matches = [i for i, t in enumerate(tracks) if i not in absorbed and is_about_the_same(t.finding, suspect)]
        if not matches:
            if not any(is_about_the_same(broader, suspect) for broader in newcomers):
                newcomers.append(suspect)
            continue
        home = min(matches, key=lambda i: _precedence(tracks[i], suspect))
        homes.setdefault(home, []).append(suspect)
        absorbed.update({i: home for i in matches if i != home and i not in homes})
    return homes, absorbed, newcomers


def _precedence(track: Track, suspect: Finding) -> tuple[bool, bool, int, str]:
    return (not track.is_open, track.finding.entity != suspect.entity, track.first_seen_step, track.id)


def _seen(
    track: Track, named: list[Finding], look: Look, new_id: Callable[[], str], rules: Rules
) -> tuple[Track, list[Event]]:
    finding = _speaker(track, named, look, rules)
    moved = replace(
        track,
        last_seen_step=look.step,
        looks=track.looks + 1,
        missed_looks=0,
        finding=finding or track.finding,
        named_step=look.step if finding else track.named_step,
        first_step=min([track.first_step, *(suspect.first_step for suspect in named)]),
    )
    if not track.is_open:
        return _opened_if_due(moved, look, new_id, rules)
    if track.is_note:
        return moved, []
    return moved, [Updated(moved, _verdict(moved.finding) != _verdict(track.finding))]


def _speaker(track: Track, named: list[Finding], look: Look, rules: Rules) -> Finding | None:
    """Return the finding that names the culprit now; None where only a part of it was named, which moves nothing."""
    broadest = max(named, key=lambda suspect: (len(suspect.ranks), weight(suspect)))
    if any(suspect.entity == track.finding.entity for suspect in named):
        same = next(suspect for suspect in named if suspect.entity == track.finding.entity)
        return broadest if len(broadest.ranks) > len(same.ranks) else same
    if len(broadest.ranks) >= len(track.finding.ranks):
        return broadest
    is_narrowed_for_good = len(named) == 1 and look.step - track.named_step >= rules.resolve_after_steps
    return broadest if is_narrowed_for_good else None


def _verdict(finding: Finding) -> tuple[str, str, str]:
    return (finding.entity, finding.cause, finding.severity)


def _opened_if_due(track: Track, look: Look, new_id: Callable[[], str], rules: Rules) -> tuple[Track, list[Event]]:
    is_due = track.looks >= rules.open_after_looks and look.step - track.first_seen_step >= rules.open_after_steps
    if not is_due:
        return track, []
    opened = replace(track, id=new_id(), opened_step=look.step)
    return opened, [Opened(opened)]


def _missed(track: Track, look: Look, rules: Rules) -> tuple[Track | None, list[Event]]:
    if track.finding.detector.partition("/")[0] in look.blind:
        return track, []
    missed = replace(track, missed_looks=track.missed_looks + 1)
    if not track.is_open:
        return None, []
    absent_steps = look.step - track.last_seen_step
    if absent_steps < rules.resolve_after_steps or missed.missed_looks < rules.resolve_after_looks:
        return missed, []
    return None, [] if track.is_note else [Resolved(track, look.step, ABSENT)]
