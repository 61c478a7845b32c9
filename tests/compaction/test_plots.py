"""The pictures show the numbers that they are given."""

from collections.abc import Iterator

import pytest

from compaction.calibration import Sample
from compaction.plots import plot_errors, plot_fit, plot_kinds
from compaction.tokens import DEFAULT, Coefficients


@pytest.fixture(autouse=True)
def without_a_screen() -> Iterator[None]:
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    yield
    plt.close("all")


def test_a_fit_is_drawn_against_usage_and_its_residuals_below() -> None:
    samples = [Sample(100, 0, 50), Sample(0, 100, 50)]
    tables = {"default": DEFAULT, "fitted": Coefficients(0.5, 0.5)}
    above, below = plot_fit(samples, tables).axes
    points = {line.get_label(): list(line.get_ydata()) for line in above.lines}
    assert points == {
        "estimate = usage": [0, 50],
        "default: mean error 75.0%": [100, 25],
        "fitted: mean error 0.0%": [50, 50],
    }
    assert [list(line.get_ydata()) for line in below.lines[1:]] == [[100, -50], [0, 0]]


def test_each_kind_has_a_row_and_each_family_a_marker_of_its_own() -> None:
    errors = {"prose": {"one": 0.2, "two": 0.2}, "code": {"one": -0.1}}
    figure = plot_kinds(errors)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["prose", "code"]
    one, two = [line for line in axes.lines if line.get_label() in ("one", "two")]
    assert list(one.get_xdata()) == pytest.approx([20, -10])
    assert list(two.get_xdata()) == pytest.approx([20])
    assert one.get_marker() != two.get_marker()
    assert one.get_ydata()[0] != two.get_ydata()[0]  # equal errors do not hide one another
    assert [round(y) for y in one.get_ydata()] == [0, 1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]


def test_errors_are_drawn_request_by_request_in_percent() -> None:
    above, below = plot_errors({"plain": [-0.3, -0.2], "anchored": [0.0, -0.01, 0.02]}).axes
    assert list(above.lines[-1].get_ydata()) == pytest.approx([-30, -20])
    assert list(below.lines[-1].get_ydata()) == pytest.approx([0, -1, 2])
    assert above.get_title() == "plain: mean error 25.0% (below 0: too low)"
    assert below.get_title() == "anchored: mean error 1.0% (below 0: too low)"
