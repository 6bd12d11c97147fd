#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Medians of what bench/dpdk.sh and bench/dpdk_faults.sh measured.

usage: dpdk_table.py [--json FILE] ROWS.jsonl     the table; FILE: the same for programs
       dpdk_table.py --rows WIRE N RUN.json       rows of one run of sluice-bench

A row is one figure of one round. Rows that agree in all but the figures are rounds of one another; what is compared (the
transport with raw frames) is compared round by round, and the median of these ratios is shown.
"""
import collections
import json
import statistics
import sys

FIGURES = ("gbit", "lost", "p50_us", "p99_us", "time_us", "share_least", "share_most", "queue_max", "queue_mean", "phantom_max",
           "marked", "full", "calm_p99_us", "calm", "away_p99_us", "wait_mean_us", "wait_most_us", "cpu_s_per_gb", "memory", "back_ms", "gap_ms", "after")
IGNORED = ("round",)


def rows_of_run(wire, ranks, path):
    for row in json.load(open(path))["rows"]:
        both = [row[place]["time_us"] for place in ("out_of_place", "in_place") if row.get(place)]
        wrong = sum(row[place]["wrong"] for place in ("out_of_place", "in_place") if row.get(place))
        if wrong:
            sys.exit(f"{path}: {wrong} wrong elements of {row['size_bytes']} bytes")
        print(json.dumps({"what": row["collective"], "wire": wire, "ranks": int(ranks), "bytes": row["size_bytes"],
                          "time_us": round(min(both), 3)}))


def read(path):
    """What was measured -> figure -> its values, a round each."""
    series = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in open(path):
        row = json.loads(line)
        key = tuple(sorted((name, value) for name, value in row.items() if name not in FIGURES + IGNORED))
        for name in FIGURES:
            if name in row:
                series[key][name].append(row[name])
    return series


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": len(values)}


def text(figure):
    return f"{figure['median']:.4g} ({figure['least']:.4g} to {figure['most']:.4g})"


def find(series, figure, **want):
    for key, figures in series.items():
        fields = dict(key)
        if all(fields.get(name) == value for name, value in want.items()):
            return figures.get(figure, [])
    return []


def ratio(above, below):
    """Round by round; None where either is missing."""
    pairs = [a / b for a, b in zip(above, below) if b]
    return spread(pairs) if pairs else None


def comparisons(series):
    """(name, ratio, what is wanted), of what both sides of were measured."""
    wires = {dict(key).get("wire") for key in series}
    raw_of = {"memif": "memif-copy", "af_packet": "af_packet", "af_xdp": "af_xdp"}
    for wire in sorted(raw_of.keys() & wires):
        stream = find(series, "gbit", what="stream", wire=wire, bytes=1 << 20)
        frame = 3392 if wire == "af_xdp" else 9000
        ceiling = find(series, "gbit", what="raw", wire=raw_of[wire], frame=frame)
        yield f"{wire}: stream of 1 MiB / raw frames of {frame} B", ratio(stream, ceiling), "0.9 or more"
        answered = find(series, "gbit", what="raw_answered", wire=raw_of[wire], frame=frame)
        yield f"{wire}: raw frames of {frame} B, answered / not", ratio(answered, ceiling), ""
        yield f"{wire}: stream of 1 MiB / raw frames of {frame} B, answered", ratio(stream, answered), ""
        yield (f"{wire}: round trip of 8 B / of a raw frame",
               ratio(find(series, "p50_us", what="rtt8", wire=wire), find(series, "p50_us", what="raw_rtt", wire=raw_of[wire])),
               "2.0 or less")
    for key in series:
        fields = dict(key)
        if fields["what"] == "allreduce" and fields["wire"] == "tcp":
            ours = find(series, "time_us", what="allreduce", wire="mesh", ranks=fields["ranks"], bytes=fields["bytes"])
            yield (f"allreduce, {fields['ranks']} ranks, {fields['bytes']} B: dpdk over memif / tcp over veth",
                   ratio(ours, series[key]["time_us"]), "less than 1")
    for key in series:
        fields = dict(key)
        if fields["what"] == "goodput" and fields["fault"] != "none" and "back_ms" not in series[key]:
            same = {name: fields[name] for name in ("paths", "routes", "bytes")}
            whole = find(series, "gbit", what="goodput", fault="none", **same)
            yield ("goodput, {paths} paths of {routes} routes, {bytes} B".format(**same) + f", {fields['fault']} / without faults",
                   ratio(series[key]["gbit"], whole), "")
    for key in series:
        fields = dict(key)
        if fields["what"] == "short":
            idle = find(series, "p50_us", what="short", fault="idle", classes=fields["classes"])
            yield (f"short message, {fields['fault']}, {fields['classes']} in the switch: p99 / idle p50",
                   ratio(series[key]["p99_us"], idle), "5 or less")


def main():
    args = sys.argv[1:]
    if args[:1] == ["--rows"] and len(args) == 4:
        return rows_of_run(*args[1:])
    out = None
    if args[:1] == ["--json"]:
        out, args = args[1], args[2:]
    if len(args) != 1:
        sys.exit(__doc__)
    series = read(args[0])
    table = []
    for key, figures in series.items():
        fields = dict(key)
        name = " ".join(str(fields[word]) for word in ("what", "wire", "paths", "routes", "fault") if word in fields)
        name += "".join(f", {fields[word]} {unit}" for word, unit in (("classes", "in the switch"), ("ranks", "ranks"), ("frame", "B"), ("bytes", "B")) if word in fields)
        shown = {figure: spread(values) for figure, values in figures.items()}
        table.append({**fields, **shown})
        print(f"{name:<44}" + "  ".join(f"{figure} {text(value)}" for figure, value in shown.items()))
    print()
    for name, value, wanted in comparisons(series):
        if value:
            table.append({"what": "ratio", "name": name, "ratio": value, "wanted": wanted})
            print(f"{name:<70} {text(value)}" + (f"  wanted: {wanted}" if wanted else ""))
    if out:
        json.dump(table, open(out, "w"), indent=1)


if __name__ == "__main__":
    main()
