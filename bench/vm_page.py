# SPDX-License-Identifier: GPL-2.0-or-later
"""The result as one HTML page that needs nothing else: settings, goals, and for each group plots and tables."""
import html
import io
import re
from pathlib import Path

from vm_rows import latency_table, table_of

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None

NO_PLOTS = "There are no plots: matplotlib (Debian's package python3-matplotlib) is not installed."
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
td, th { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
.settings td, td.text { white-space: normal; text-align: left; vertical-align: top; overflow-wrap: anywhere }
.met { color: #060 } .missed { color: #b00; font-weight: bold }
svg { max-width: 100%; height: auto } .wide { overflow-x: auto }
"""
COLOURS = {"tux3": "#c0392b", "tmpfs": "#7f8c8d", "ext4": "#2980b9", "xfs": "#27ae60", "btrfs": "#8e44ad", "xfs-parent0": "#27ae60",
           "xfs-parent1": "#145a32"}
PLOTS_PER_LINE = 4


def plotted(figures):
    return [figure for figure in figures if not figure.is_latency() and "CPU" not in figure.part]


def bars(axes, figure, names):
    """Medians as bars, each round as a dot."""
    for place, name in enumerate(names):
        if name in figure.samples:
            axes.bar(place, figure.median(name), color=COLOURS.get(name, "#555"), width=0.7)
            axes.plot([place] * len(figure.samples[name]), figure.samples[name], "o", color="black", markersize=2.5)
    arrow = "more is better" if figure.better == "higher" else "less is better"
    axes.set_title(figure.part or "result", fontsize=9)
    axes.set_ylabel(f"{figure.unit} ({arrow})", fontsize=7)


def cpu_bars(axes, figures, names):
    """Front end and back end on top of each other, the busy time of the machine as a line."""
    parts = {figure.part.rpartition("CPU ")[2]: figure for figure in figures}
    for place, name in enumerate(names):
        base = 0
        for part, alpha in (("front end", 1.0), ("back end", 0.45)):
            value = parts[part].median(name) if part in parts else None
            if value is not None:
                axes.bar(place, value, bottom=base, color=COLOURS.get(name, "#555"), alpha=alpha, width=0.7)
                base += value
        busy = parts["machine"].median(name) if "machine" in parts else None
        if busy is not None:
            axes.plot([place - 0.4, place + 0.4], [busy, busy], color="black", linewidth=1)
    unit = figures[0].unit
    axes.set_title(f"{figures[0].part.rpartition('CPU ')[0]}CPU: front, above it back; line: machine", fontsize=8)
    axes.set_ylabel(f"{unit} (less is better)", fontsize=7)


def latency_bars(figures, names):
    """Averages of all operations, on a logarithmic scale."""
    averages = [figure for figure in figures if figure.is_latency() and figure.part.endswith("average")]
    if not averages:
        return ""
    picture, axes = pyplot.subplots(figsize=(14, 3.2))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [place + number * width for place in range(len(averages))]
        axes.bar(places, [figure.median(name) or 0 for figure in averages], width, color=COLOURS.get(name, "#555"),
                 label=name)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(averages))],
                    [figure.part.split()[0] for figure in averages], fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("average latency, us (less is better)", fontsize=7)
    axes.legend(fontsize=8, ncol=len(names))
    return as_svg(picture)


def overview(rows, titles, names):
    """How many times better tux3 is than each other, for the main figures of all groups."""
    peers = [name for name in names if name != "tux3"]
    figures = [figure for title in titles for figure in rows.of_group(title) if figure.is_main()]
    picture, axes = pyplot.subplots(figsize=(14, 0.9 + 0.42 * len(figures)))
    height = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        places = [place + number * height for place in range(len(figures))]
        ratios = [figure.times_better_in_rounds("tux3", peer) or 1 for figure in figures]
        axes.barh(places, [ratio - 1 for ratio in ratios], height, left=1, color=COLOURS.get(peer, "#555"), label=peer)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(figures))], [figure.name for figure in figures],
                    fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("how many times better tux3 is (to the left of the line: worse)", fontsize=8)
    axes.legend(fontsize=8)
    return as_svg(picture)


def as_svg(picture):
    picture.tight_layout()
    text = io.StringIO()
    picture.savefig(text, format="svg")
    pyplot.close(picture)
    return re.sub(r"^.*?(?=<svg)", "", text.getvalue(), flags=re.S)


def plots(figures, names):
    """All of a group, as SVG."""
    cpu = {}
    for figure in figures:
        if "CPU" in figure.part:
            cpu.setdefault(figure.part.rpartition("CPU ")[0], []).append(figure)
    drawings = [lambda axes, f=figure: bars(axes, f, names) for figure in plotted(figures)]
    drawings += [lambda axes, f=part: cpu_bars(axes, f, names) for part in cpu.values()]
    lines = -(-len(drawings) // PLOTS_PER_LINE)
    picture, grid = pyplot.subplots(lines, PLOTS_PER_LINE, figsize=(14, 2.7 * lines), squeeze=False)
    places = [axes for line in grid for axes in line]
    for axes, draw in zip(places, drawings):
        draw(axes)
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.tick_params(axis="y", labelsize=7)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(bottom=0)
        axes.margins(y=0.1)
    for axes in places[len(drawings):]:
        axes.axis("off")
    return as_svg(picture) + latency_bars(figures, names)


def table(head, lines, kind=""):
    rows = ["".join(f"<th>{html.escape(word)}</th>" for word in head)] if head else []
    rows += ["".join(f"<td>{html.escape(str(word))}</td>" for word in line) for line in lines]
    return f"<div class=wide><table class=\"{kind}\">{''.join(f'<tr>{row}</tr>' for row in rows)}</table></div>"


def goal_line(text, met):
    word, kind = {None: ("not measured", ""), True: ("met", "met"), False: ("MISSED", "missed")}[met]
    return f"<tr class=\"{kind}\"><td>{word}</td><td class=text>{html.escape(text)}</td></tr>"


def write_page(path, title, config, titles, rows, goals, names):
    """titles: of the groups."""
    parts = [f"<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>{html.escape(title)}</title>",
             f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>"]
    if goals:
        parts.append(f"<h2>Goals</h2><table>{''.join(goal_line(*goal) for goal in goals)}</table>")
    if not pyplot:
        parts.append(f"<p>{NO_PLOTS}</p>")
    titles = [name for name in titles if rows.of_group(name)]
    if pyplot and "tux3" in names and len(names) > 1:
        parts.append("<h2>Overview</h2>" + overview(rows, titles, names))
    for name in titles:
        figures = rows.of_group(name)
        parts.append(f"<h2>{html.escape(name)}</h2>")
        if pyplot:
            parts.append(plots(figures, names))
        parts.append(table(*table_of([figure for figure in figures if not figure.is_latency()], names)))
        if latencies := latency_table(figures, names):
            parts.append(table(*latencies))
    parts.append("<h2>Settings</h2>" + table(None, config.items(), "settings"))
    parts.append("</body></html>\n")
    Path(path).write_text("\n".join(parts))
    if not pyplot:
        print(NO_PLOTS)
