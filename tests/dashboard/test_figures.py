from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from analytics.window import Topology
from dashboard.figures.heatmap import MAX_COLUMNS, MAX_ROWS, StepMark, ratio_heatmap, to_percent
from dashboard.figures.host_metrics import MetricPanel, host_metrics, metric_title, worst_nodes
from dashboard.figures.notice import notice
from dashboard.figures.palette import DARK, LIGHT, Palette
from dashboard.figures.safe_text import safe_text, short_label
from dashboard.figures.sample_line import SampleSeries, sample_line
from dashboard.figures.step_time import StepSeries, step_time
from dashboard.figures.thinning import thin

GOLDEN = Path(__file__).parent / "golden"
NOISE = np.random.default_rng(3)


def topology(n_ranks: int) -> Topology:
    return Topology(np.arange(n_ranks), tuple(f"node-{rank // 8}" for rank in range(n_ranks)))


def small_heatmap() -> go.Figure:
    ratios = np.log(np.array([[1.0, 1.0, 1.1], [1.0, 1.4, 1.5], [np.nan, 0.9, 3.0]]))
    return ratio_heatmap(topology(3), np.array([7, 8, 9]), ratios, LIGHT, key="r", marked_steps=[StepMark(8, "since")])


def small_step_time() -> go.Figure:
    ramp = np.array([1.0, 1.1, 1.2])
    series = StepSeries(np.arange(3), ramp, ramp * 0.9, ramp * 1.1, ramp * 1.3, np.full(3, 4))
    return step_time(series, DARK, key="r", marks=[StepMark(1, "since")])


def small_loss() -> go.Figure:
    values = np.array([3.0, np.nan, 2.0])
    return sample_line(SampleSeries("loss", np.arange(3), np.array([3.0, 2.5, 2.0]), values, values), LIGHT, key="r")


def small_hosts() -> go.Figure:
    panel = MetricPanel(
        "temperature_celsius", ("a", "b", "c"), np.array([0, 10**9]), np.array([[1.0, 2], [1, 2], [1, 9]])
    )
    return host_metrics([panel], ["c"], LIGHT, key="r")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("heatmap", small_heatmap),
        ("step_time", small_step_time),
        ("sample_line", small_loss),
        ("host_metrics", small_hosts),
        ("notice", lambda: notice("Nothing <yet>", LIGHT, height=100)),
    ],
)
def test_figure_equals_its_golden_form(name: str, make: Any, request: pytest.FixtureRequest) -> None:
    # To accept a wanted change: delete the file and run once; the new one is then to be read and committed.
    figure = json.loads(make().to_json())
    figure["layout"].pop("template", None)
    path = GOLDEN / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(figure, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        pytest.fail(f"{path.name} was missing and has been written: read it, then commit it")

    assert figure == json.loads(path.read_text())


def test_percent_is_zero_where_unknown_and_stops_at_255() -> None:
    assert to_percent(np.array([[np.nan, 0.0, np.log(1.4), 5.0, -9.0]])).tolist() == [[0, 100, 140, 255, 1]]


def test_ten_thousand_ranks_make_a_small_figure_that_shows_the_bad_one_twice() -> None:
    ratios = NOISE.normal(0, 0.02, (10_000, 300)).astype(np.float32)
    ratios[4_321, 200:] = np.log(1.6)

    figure = ratio_heatmap(topology(10_000), np.arange(300), ratios, LIGHT)

    worst, everyone = json.loads(figure.to_json())["data"]
    assert worst["y"][0] == "rank 4321 · node-540"
    cells = decoded(everyone["z"])
    assert cells.shape[0] <= MAX_ROWS
    assert cells.shape[1] <= MAX_COLUMNS
    assert cells[:, 250].max() == 160
    assert len(figure.to_json()) < 400_000


def test_accused_ranks_stand_on_top_and_are_marked() -> None:
    figure = ratio_heatmap(topology(64), np.arange(20), NOISE.normal(0, 0.1, (64, 20)), LIGHT, marked_ranks=[17, 18])

    labels = list(figure.data[0].y)
    assert {labels[0], labels[1]} == {"▶ rank 17 · node-2", "▶ rank 18 · node-2"}
    assert not labels[2].startswith("▶")


def test_a_mark_outside_the_window_is_not_drawn() -> None:
    figure = ratio_heatmap(topology(3), np.arange(5), np.zeros((3, 5)), LIGHT, marked_steps=[StepMark(99, "since")])

    assert not figure.layout.shapes


def test_host_names_reach_plotly_as_text_not_as_markup() -> None:
    hostile = "<b onclick=x>%{y}</b>"
    ratios = np.zeros((2, 4))

    figure = ratio_heatmap(Topology(np.arange(2), (hostile, "n")), np.arange(4), ratios, LIGHT)

    shown = figure.to_json()
    assert "<b" not in shown.replace("<br>", "")
    assert safe_text(hostile) == "&lt;b onclick=x&gt;%\u200b{y}&lt;/b&gt;"


def test_long_names_keep_both_ends() -> None:
    assert short_label("gpu-cluster-eu-west-rack-17-node-0042", 15) == "gpu-clu…de-0042"


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_text_has_enough_contrast(colours: Palette) -> None:
    for name in ("text", "muted"):
        assert contrast(getattr(colours, name), colours.surface) >= 4.5
    for line in (*colours.lines, colours.accent, colours.bad):
        assert contrast(line, colours.surface) >= 3.0


def test_lines_never_exceed_a_hundred() -> None:
    nodes = tuple(f"n{i}" for i in range(1250))
    panels = [MetricPanel(f"m{i}", nodes, np.arange(4) * 10**9, NOISE.random((1250, 4))) for i in range(12)]

    figure = host_metrics(panels, worst_nodes(panels, []), LIGHT)

    assert len(figure.data) <= 100


def test_the_hot_node_is_drawn_first_after_the_accused_one() -> None:
    values = 60 + NOISE.normal(0, 0.5, (20, 10))
    values[7] += 30
    panel = MetricPanel("temperature_celsius", tuple(f"n{i}" for i in range(20)), np.arange(10), values)

    assert worst_nodes([panel], ["n3"], most=2) == ["n3", "n7"]


def test_metric_titles_say_their_unit() -> None:
    assert metric_title("memory_available_bytes") == "memory available, B"
    assert metric_title("pressure_cpu_some_ratio") == "pressure cpu some"
    assert metric_title("queue_depth") == "queue depth"


def test_every_nonfinite_value_leaves_a_mark() -> None:
    values = np.ones(50)
    values[[10, 20]] = np.nan, np.inf

    figure = sample_line(SampleSeries("loss", np.arange(50), np.ones(50), np.ones(50), values), LIGHT)

    marks = figure.data[-1]
    assert list(marks.x) == [10, 20]
    assert list(marks.customdata) == ["NaN", "infinity"]


def test_a_loss_that_is_never_finite_is_all_marks() -> None:
    nothing = np.full(5, np.nan)

    figure = sample_line(SampleSeries("loss", np.arange(5), nothing, nothing, nothing), LIGHT)

    assert list(figure.data[-1].x) == [0, 1, 2, 3, 4]


def test_thinning_keeps_ends_and_a_lone_peak() -> None:
    values = np.sin(np.arange(50_000) / 900)
    values[31_415] = 40

    kept = thin(values, most=500)

    assert len(kept) <= 510
    assert {0, 31_415, 49_999} <= set(kept.tolist())


def decoded(array: dict[str, str]) -> np.ndarray:
    rows, columns = (int(part) for part in array["shape"].split(","))
    return np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"]).reshape(rows, columns)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
