"""Pictures that explain: each function returns a matplotlib figure of what it is given.

All of them work on a reader's own history. Colours are Okabe and Ito's, which colour-blind
readers can tell apart, and every colour comes with a marker, a pattern or a word. The
background is opaque, so that a figure reads the same in a light and in a dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compaction.calibration import Sample, TokenMeter, mean_error
from compaction.messages import Message, calls_of, content_of, is_summary
from compaction.tokens import Coefficients

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from compaction.budget import Row
    from compaction.grouping import Group
    from compaction.probes import ProbeReport

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#8C8C8C"
"""The palette of M. Okabe and K. Ito, Color Universal Design, 2002, and a grey."""

SERIES = ((BLUE, "o", "-"), (VERMILION, "s", "--"), (GREEN, "^", "-."), (PURPLE, "D", ":"))
"""Colour, marker and line style of the first, second, ... series of a plot."""

# Kind of group -> colour and pattern.
_KIND_STYLE = {
    "system": (GREY, "//"),
    "pinned": (YELLOW, ".."),
    "unfinished": (VERMILION, "xx"),
    "recent": (SKY, ""),
    "compressible": (ORANGE, "\\\\"),
    "summary": (GREEN, "++"),
}


def show(figure: Figure, alt: str) -> None:
    """Display a figure with alt text, and close it. In a notebook only.

    The sentence about the figure belongs in the text below it.
    """
    import io

    import matplotlib.pyplot as plt
    from IPython.display import display

    buffer = io.BytesIO()
    # Without the metadata matplotlib would write its version into the file.
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    plt.close(figure)
    data = {"image/png": buffer.getvalue(), "text/plain": f"Figure: {alt}"}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})


def plot_fit(samples: Sequence[Sample], tables: Mapping[str, Coefficients]) -> Figure:
    """Draw estimates against real tokens, the residuals below, for up to four tables."""
    figure, (above, below) = _figure(6.4, 6, rows=(3, 2))
    real = [sample.tokens for sample in samples]
    above.plot([0, max(real)], [0, max(real)], color=GREY, linewidth=1, label="estimate = usage")
    below.axhline(0, color=GREY, linewidth=1)
    for (name, table), (colour, marker, _) in zip(tables.items(), SERIES, strict=False):
        estimates = [table.cjk * s.cjk + table.other * s.other for s in samples]
        errors = [100 * (e - t) / t for e, t in zip(estimates, real, strict=True)]
        label = f"{name}: mean error {mean_error(samples, table):.1%}"
        above.plot(real, estimates, marker, color=colour, markersize=7, label=label)
        above.vlines(real, real, estimates, color=colour, linewidth=1, alpha=0.5)
        below.plot(real, errors, marker, color=colour, markersize=7)
        below.vlines(real, 0, errors, color=colour, linewidth=1, alpha=0.5)
    above.set(ylabel="estimated tokens", title="Estimate against usage")
    below.set(xlabel="real tokens (usage)", ylabel="error in %", title="What is left over")
    below.set_xlim(above.get_xlim())
    above.legend(fontsize=9)
    return figure


def plot_kinds(errors: Mapping[str, Mapping[str, float]], title: str = "") -> Figure:
    """Draw signed errors (fractions) as dots: one row per kind of text, one dot per family.

    ``errors`` maps a kind of text to a mapping from the name of a tokenizer to the error.
    """
    kinds = list(errors)
    figure, (axes,) = _figure(6.4, 0.42 * len(kinds) + 1.6)
    families = list(dict.fromkeys(family for row in errors.values() for family in row))
    markers = "os^DvP*X"
    colours = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY, "#000000")
    for row in range(1, len(kinds)):
        axes.axhline(row - 0.5, color="#E8E8E8", linewidth=1)
    for place, (family, marker, colour) in enumerate(zip(families, markers, colours, strict=False)):
        rows = [i for i, kind in enumerate(kinds) if family in errors[kind]]
        values = [100 * errors[kinds[i]][family] for i in rows]
        # A step down for each family, so that equal errors do not hide one another.
        heights = [i + 0.6 * ((place + 0.5) / len(families) - 0.5) for i in rows]
        style: dict[str, Any] = {
            "marker": marker,
            "color": colour,
            "linestyle": "none",
            "markersize": 6,
        }
        axes.plot(values, heights, label=family, **style)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set(xlabel="error of the estimate in % (left of 0: too low)", title=title)
    figure.legend(fontsize=9, loc="outside lower center", ncols=3)
    return figure


def plot_budget(rows: Sequence[Row], window: int | None = None) -> Figure:
    """Draw each path's use beside its allowance; over-runs are named in words."""
    figure, (axes,) = _figure(7, 4.2)
    positions = range(len(rows))
    axes.barh(
        positions,
        [row.allowance for row in rows],
        height=0.78,
        color="#E8E8E8",
        edgecolor=GREY,
        label="allowance",
    )
    for label, over, colour, hatch in (
        ("in use, within the allowance", False, BLUE, ""),
        ("in use, over the allowance", True, VERMILION, "//"),
    ):
        tokens = [row.tokens if row.over == over else 0 for row in rows]
        if any(tokens):
            axes.barh(positions, tokens, 0.42, color=colour, hatch=hatch, ec="white", label=label)
    for position, row in zip(positions, rows, strict=True):
        note = f"{row.tokens} of {row.allowance}" + ("  OVER" if row.over else "")
        axes.annotate(
            note,
            (max(row.tokens, row.allowance), position),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if row.over else "normal",
        )
    axes.set_yticks(positions, [row.path for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.24)
    total = sum(row.tokens for row in rows)
    of_window = f" of {window}" if window else ""
    axes.set(xlabel="tokens", title=f"Who uses the window: {total}{of_window} tokens")
    figure.legend(fontsize=9, loc="outside lower center", ncols=3)
    return figure


def plot_occupancy(
    histories: Mapping[str, Sequence[int]],
    window: int,
    threshold: float | None = 0.70,
    emergency: float | None = None,
    fires: Mapping[str, Sequence[int]] | None = None,
    turns: Sequence[int] = (),
) -> Figure:
    """Draw tokens message by message for up to four histories, with the lines that are watched.

    ``fires`` maps a history's name to the messages (counted from 1) at which compaction fires.
    ``turns`` are the messages at which a user's turn begins.
    """
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = _figure(7, 4.2)
    for turn, message in enumerate(turns, 1):
        axes.axvline(message, color=GREY, linestyle=":", linewidth=1)
        axes.annotate(
            f"turn {turn}",
            (message, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    for (name, tokens), (colour, marker, style) in zip(histories.items(), SERIES, strict=False):
        messages = list(range(1, len(tokens) + 1))
        axes.plot(messages, tokens, style, color=colour, marker=marker, markersize=5, label=name)
        for message in (fires or {}).get(name, ()):
            axes.annotate(
                "compacts",
                (message, tokens[message - 1]),
                xytext=(0, 18),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                arrowprops={"arrowstyle": "->", "color": colour},
            )
    lines = ((1.0, "window"), (threshold, "threshold"), (emergency, "emergency"))
    for share, word in lines:
        if share is not None:
            dashes: Any = "-" if share == 1.0 else (0, (5, 3))
            axes.axhline(share * window, color=GREY, linestyle=dashes, linewidth=1)
            # The emergency line runs close under the window's end: their names keep apart.
            left = share != 1.0
            axes.annotate(
                f"{word} {share * window:,.0f}" + (f" ({share:.0%})" if left else ""),
                (0 if left else 1, share * window),
                xycoords=("axes fraction", "data"),
                xytext=(4 if left else -2, -3 if word == "emergency" else 3),
                textcoords="offset points",
                ha="left" if left else "right",
                va="top" if word == "emergency" else "bottom",
                fontsize=9,
            )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="messages so far", ylabel="tokens")
    axes.set_title("How full the window is", pad=20 if turns else None)
    top = max([window, *(max(tokens, default=0) for tokens in histories.values())])
    axes.set_ylim(0, top * 1.1)
    figure.legend(fontsize=9, loc="outside lower center", ncols=4)
    return figure


def plot_strip(
    messages: Sequence[Message],
    groups: Sequence[Group] | None = None,
    title: str = "",
    widest: int | None = None,
) -> Figure:
    """Draw one row a message: width by tokens, kind by colour and pattern, groups bracketed.

    ``widest`` fixes the scale (tokens), so that two strips can be compared.
    """
    figure, (axes,) = _figure(6.6, 0.26 * len(messages) + 1.2)
    used = draw_strip(axes, messages, groups, title, widest)
    _name_kinds(figure, used)
    return figure


def plot_strips(
    histories: Mapping[str, Sequence[Message]],
    groups: Mapping[str, Sequence[Group]] | None = None,
) -> Figure:
    """Draw several strips below one another on one scale, such as before and after compaction."""
    import matplotlib.pyplot as plt

    widest = max(TokenMeter().count([m]) for messages in histories.values() for m in messages)
    rows = [len(messages) for messages in histories.values()]
    figure, panels = plt.subplots(
        len(rows),
        1,
        figsize=(6.6, 0.25 * sum(rows) + 0.5 * len(rows) + 1),
        layout="constrained",
        squeeze=False,
        sharex=True,
        height_ratios=rows,
        facecolor="white",
    )
    used: set[str] = set()
    for axes, (name, messages) in zip(panels[:, 0], histories.items(), strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        title = f"{name}: {len(messages)} messages, {TokenMeter().count(messages)} tokens"
        used |= draw_strip(axes, messages, (groups or {}).get(name), title, widest)
        axes.label_outer()
    _name_kinds(figure, used)
    return figure


def draw_strip(
    axes: Axes,
    messages: Sequence[Message],
    groups: Sequence[Group] | None,
    title: str,
    widest: int | None,
) -> set[str]:
    """Draw a message strip into existing axes and return the kinds in it: :func:`plot_strip`."""
    from compaction.grouping import group_messages

    groups = group_messages(messages) if groups is None else groups
    kinds = {i: group.keep for group in groups for i in range(group.start, group.end)}
    kinds |= {i: "summary" for i, message in enumerate(messages) if is_summary(message)}
    tokens = [TokenMeter().count([message]) for message in messages]
    scale = widest or max(tokens, default=1)
    for row, width in enumerate(tokens):
        colour, hatch = _KIND_STYLE[kinds[row]]
        axes.barh(row, width, 0.74, color=colour, hatch=hatch, edgecolor="#333333", linewidth=0.6)
        axes.annotate(
            str(width), (width, row), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    for group in groups:
        if group.end - group.start > 1:
            x, low, high = -0.02 * scale, group.start - 0.3, group.end - 0.7
            axes.plot([0, x, x, 0], [low, low, high, high], color="#333333", clip_on=False)
    axes.set_yticks(range(len(messages)), [_label(message) for message in messages], fontsize=8.5)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.set_ylim(len(messages) - 0.4, -0.6)
    axes.set_xlim(-0.03 * scale, scale * 1.12)
    axes.set_xlabel("tokens")
    axes.set_title(title, fontsize=10)
    return set(kinds.values())


def _name_kinds(figure: Figure, used: set[str]) -> None:
    """Put a legend of the kinds in use below a figure of strips."""
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="#333333", label=kind)
        for kind, (colour, hatch) in _KIND_STYLE.items()
        if kind in used
    ]
    figure.legend(
        handles=patches,
        fontsize=9,
        loc="outside lower center",
        ncols=5,
        handlelength=2,
        columnspacing=1,
        frameon=False,
    )


def _label(message: Message) -> str:
    calls = calls_of(message)
    what = calls[0].name if calls else " ".join(content_of(message).split())
    # Some fonts have no CJK glyphs; a box in a label helps nobody.
    what = "".join(c if c.isascii() else "·" for c in what)
    return f"{message.get('role')}: {what[:22]}"


def plot_probes(reports: Mapping[str, ProbeReport], tokens: Mapping[str, int]) -> Figure:
    """Draw a table of probes against methods: "kept" or "lost" in words, with the tokens."""
    probes = list(dict.fromkeys(p for r in reports.values() for p in (*r.kept, *r.lost)))
    figure, (axes,) = _figure(1.3 * len(reports) + 2.1, 0.55 * len(probes) + 1.3)
    for column, report in enumerate(reports.values()):
        for row, probe in enumerate(probes):
            kept = probe in report.kept
            colour, hatch = ("#CCE5DD", "") if kept else ("#F6D5C3", "//")
            axes.barh(row, 0.94, 0.86, column - 0.47, color=colour, hatch=hatch, edgecolor="white")
            word = "kept" if kept else "LOST"
            weight = "normal" if kept else "bold"
            axes.text(column, row, word, ha="center", va="center", fontsize=9, fontweight=weight)
    labels = [f"{name}\n{tokens[name]} tokens" for name in reports]
    axes.set_xticks(range(len(reports)), labels, fontsize=9)
    axes.set_yticks(range(len(probes)), [probe.fact for probe in probes], fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_ylim(len(probes) - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def plot_methods(tokens: Mapping[str, int], kept: Mapping[str, tuple[int, int]]) -> Figure:
    """Draw the tokens that each method leaves, and how many facts of how many it keeps."""
    figure, (axes,) = _figure(6, 0.55 * len(tokens) + 1.2)
    patterns = ("", "//", "..", "\\\\", "xx")
    for row, (name, count) in enumerate(tokens.items()):
        colour, hatch = SERIES[row % len(SERIES)][0], patterns[row % len(patterns)]
        axes.barh(row, count, 0.62, color=colour, hatch=hatch, edgecolor="white")
        found, of = kept[name]
        note = f"{count} tokens,\n{found} of {of} facts kept"
        axes.annotate(note, (count, row), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(tokens)), list(tokens))
    axes.invert_yaxis()
    axes.set_xlim(0, max(tokens.values()) * 1.5)
    axes.set(xlabel="tokens", title="What each method leaves on the desk")
    return figure


def plot_sweep(rows: Sequence[Any], uncompacted: Any | None = None) -> Figure:
    """Draw tokens against success for up to four policies of day 7, a point a ``keep``.

    ``rows`` are those of :func:`compaction.carrying.sweep`. The first run has filled markers
    and a line, the second hollow ones; ``uncompacted`` is the run that a star stands for.
    """
    figure, (axes,) = _figure(6.4, 4.4)
    compacted = [row for row in rows if row.keep is not None]
    for place, (policy, (colour, marker, style)) in enumerate(
        zip(dict.fromkeys(row.policy for row in compacted), SERIES, strict=False)
    ):
        chosen = [row for row in compacted if row.policy == policy]
        for run, line, face in (("first", style, colour), ("second", "none", "none")):
            axes.plot(
                [getattr(row, run).tokens for row in chosen],
                [100 * getattr(row, run).success for row in chosen],
                linestyle=line,
                linewidth=1.2,
                color=colour,
                marker=marker,
                markerfacecolor=face,
                label=policy if run == "first" else f"{policy}, second run",
            )
        for row in chosen:
            axes.annotate(
                str(row.keep),
                (row.first.tokens, 100 * row.first.success),
                (-5 if place % 2 else 7, -15),  # beside each other where two points coincide
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=colour,
            )
    if uncompacted is not None:
        success = 100 * uncompacted.success
        axes.plot(uncompacted.tokens, success, "*", ms=13, color="#333333", label="all kept")
    axes.set(
        xlabel="tokens of the whole run (left is cheaper); a number is the budget in fields",
        ylabel="tasks solved in % (up is better)",
        title="Which fields are kept matters more than how many",
    )
    axes.margins(x=0.08, y=0.14)
    figure.legend(fontsize=9, loc="outside lower center", ncols=3)
    return figure


def plot_trace(
    estimates: Sequence[int],
    labels: Sequence[str],
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    compacts: Sequence[int] = (),
) -> Figure:
    """Draw the estimate at each growth point of an engine's run, with both lines.

    ``compacts`` are the positions (from 0) at which the decision is to compact.
    """
    from textwrap import fill

    figure, (axes,) = _figure(max(6.4, 0.75 * len(estimates)), 4.4)
    steps = range(len(estimates))
    axes.plot(steps, estimates, "-", color=BLUE, linewidth=1.2)
    going = [i for i in steps if i not in set(compacts)]
    axes.plot(going, [estimates[i] for i in going], "o", color=BLUE, label="go on")
    if compacts:
        heights = [estimates[i] for i in compacts]
        axes.plot(list(compacts), heights, "X", ms=11, color=VERMILION, label="compact")
    for step, estimate in enumerate(estimates):
        # Below a point that the line comes down to, so that it does not cross the figures.
        comes_down = step > 0 and estimates[step - 1] > estimate
        axes.annotate(
            f"{estimate:,}\n{estimate / window:.1%}",
            (step, estimate),
            (0, -9 if comes_down else 9),
            textcoords="offset points",
            ha="center",
            va="top" if comes_down else "bottom",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    # The lines' names are on the side where the window is emptier.
    left = not estimates or estimates[0] <= estimates[-1]
    for share, word in ((threshold, "threshold"), (emergency, "emergency")):
        axes.axhline(share * window, color=GREY, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(
            f"{word} {share * window:,.0f} ({share:.0%})",
            (0 if left else 1, share * window),
            xycoords=("axes fraction", "data"),
            xytext=(3 if left else -3, 3),
            textcoords="offset points",
            ha="left" if left else "right",
            fontsize=9,
        )
    axes.set_xticks(steps, [fill(label, 9) for label in labels], fontsize=9)
    axes.set_ylim(0, window * 1.08)
    axes.set_xlim(-0.5, len(estimates) - 0.5)
    axes.set(ylabel="tokens", title="The engine's estimate at every growth point")
    figure.legend(fontsize=9, loc="outside lower center", ncols=2)
    return figure


def plot_errors(errors: Mapping[str, Sequence[float]], limit: float = 0.6) -> Figure:
    """Draw signed relative errors (fractions) request by request, a panel a way of counting."""
    figure, panels = _figure(6.4, 2.6 * len(errors), rows=[1] * len(errors))
    for axes, (name, values), (colour, marker, _) in zip(
        panels, errors.items(), SERIES, strict=False
    ):
        axes.axhline(0, color=GREY, linewidth=1)
        axes.plot([100 * v for v in values], marker, color=colour, markersize=3)
        mean = sum(map(abs, values)) / len(values)
        axes.set_xlim(-0.02 * len(values), 1.02 * len(values))
        axes.set_ylim(-100 * limit, 100 * limit)
        axes.set(ylabel="error in %", title=f"{name}: mean error {mean:.1%} (below 0: too low)")
    panels[-1].set_xlabel("request")
    return figure


def _figure(
    width: float, height: float, columns: int = 1, rows: Sequence[float] = (1,)
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row; ``rows`` are the rows' relative heights."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(rows),
        columns,
        figsize=(width, height),
        height_ratios=rows,
        layout="constrained",
        squeeze=False,
        facecolor="white",
    )
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.title.set_fontsize(10)
    return figure, list(axes.flat)
