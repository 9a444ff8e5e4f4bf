# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the benchmarks in the virtual machine: rows in groups, ratios of filesystems, goals, tables."""
import re
import statistics

from common import Row, format_value, print_table

LATENCY = re.compile(r"(\w+) (average|maximum)$")
# Not what a measurement is about, but how it came about.
ASIDE = re.compile(r"CPU |write bios|write requests|flushes|written|max latency|page cache")


class Figure(Row):
    """A row whose samples know their round.  title: of its group; part: name within it, "" for its main figure."""

    def __init__(self, title, part, unit, better):
        super().__init__(": ".join(filter(None, (title, part))), unit, better)
        self.title, self.part, self.rounds = title, part, {}

    def add_in_round(self, who, number, value):
        self.add(who, value)
        self.rounds.setdefault(who, {})[number] = value

    def without(self, rounds):
        """The same, of the other rounds."""
        rest = Figure(self.title, self.part, self.unit, self.better)
        for who, values in self.rounds.items():
            for number, value in values.items():
                if number not in rounds:
                    rest.add_in_round(who, number, value)
        return rest

    def ratios(self, who, other):
        """who / other in each round that has both."""
        mine, theirs = self.rounds.get(who, {}), self.rounds.get(other, {})
        return [mine[n] / theirs[n] for n in sorted(mine) if theirs.get(n)]

    def ratio(self, who, other):
        """Median of the rounds' ratios; None."""
        ratios = self.ratios(who, other)
        return statistics.median(ratios) if ratios else None

    def is_latency(self):
        return LATENCY.match(self.part)

    def times_better_in_rounds(self, who, other):
        """The median of the rounds; None."""
        ratio = self.ratio(who, other)
        return ratio and (1 / ratio if self.better == "lower" else ratio)

    def is_main(self):
        return not (self.is_latency() or ASIDE.search(self.part))

    def as_json(self):
        return {**super().as_json(), "group": self.title, "part": self.part}


class Rows:
    """All figures, in the order in which they came."""

    def __init__(self):
        self.figures = {}

    def add(self, group, who, number, figures):
        for part, unit, better, value in figures:
            if (group.title, part) not in self.figures:
                self.figures[group.title, part] = Figure(group.title, part, unit, better)
            if value is not None:
                self.figures[group.title, part].add_in_round(who, number, value)

    def get(self, title, part=""):
        return self.figures.get((title, part))

    def of_group(self, title):
        return [figure for figure in self.figures.values() if figure.title == title]

    def all(self):
        return list(self.figures.values())


class Goal:
    """A figure of tux3 is at least (or at most) so many times that of a peer."""

    def __init__(self, title, part, peer, factor, at_least):
        self.title, self.part, self.peer, self.factor, self.at_least = title, part, peer, factor, at_least

    def judge(self, rows):
        """(sentence, met): met is None if it was not measured."""
        return self.judge_figure(rows.get(self.title, self.part))

    def judge_figure(self, figure):
        name = ": ".join(filter(None, (self.title, self.part)))
        text = f"{name}: at {'least' if self.at_least else 'most'} {self.factor:g} x {self.peer}"
        ratios = figure.ratios("tux3", self.peer) if figure else []
        if not ratios:
            return text, None
        ratio = statistics.median(ratios)
        spread = f"; rounds {min(ratios):.2f} .. {max(ratios):.2f}" if len(ratios) > 1 else ""
        return (f"{text}; measured {ratio:.2f} x ({format_value(figure.median('tux3'))} beside "
                f"{format_value(figure.median(self.peer))} {figure.unit}{spread})",
                ratio >= self.factor if self.at_least else ratio <= self.factor)


def cell(figure, who):
    if figure is None or who not in figure.samples:
        return "-"
    spread = f" ±{figure.spread(who):.0f}%" if len(figure.samples[who]) > 1 else ""
    return format_value(figure.median(who)) + spread


def ratio_cell(figure, who, other):
    ratio = figure.ratio(who, other)
    return "-" if ratio is None else f"{ratio:.2f}"


def table_of(figures, names):
    """Head and lines: a line for each figure, a column for each filesystem, and tux3's ratio to each other."""
    peers = [name for name in names if name != "tux3"] if "tux3" in names else []
    head = ["median ± half the range", *names, *(f"/{peer}" for peer in peers)]
    lines = [[f"{figure.part or figure.title}, {figure.unit}", *(cell(figure, name) for name in names),
              *(ratio_cell(figure, "tux3", peer) for peer in peers)] for figure in figures]
    return head, lines


def latency_table(figures, names):
    """dbench's table of operations: average in microseconds and maximum in milliseconds, of each filesystem."""
    by_name = {}
    for figure in figures:
        if match := figure.is_latency():
            by_name.setdefault(match[1], {})[match[2]] = figure
    if not by_name:
        return None
    head = ["operation", *(f"{name} us" for name in names), *(f"{name} max ms" for name in names)]
    lines = [[operation, *(cell(kinds["average"], name) for name in names),
              *(format_value(kinds["maximum"].median(name)) for name in names)] for operation, kinds in by_name.items()]
    return head, lines


def print_group(figures, names, with_latency):
    print_table(*table_of([figure for figure in figures if not figure.is_latency()], names))
    if with_latency and (table := latency_table(figures, names)):
        print_table(*table)
