#!/usr/bin/env python3
"""The table of peers.sh: RUNS.jsonl [SUMMARY.json]. The least of each figure over the rounds (others
use the machine too: what is least is nearest to what it costs), and the median of the ratios within
a round."""
import json
import statistics
import sys


def main():
    runs = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    whats = list(dict.fromkeys(r["what"] for r in runs))
    summary = []
    for what in whats:
        mine = {r["round"]: r for r in runs if r["what"] == what and r["tool"] == "sluice"}
        print(f"\n{what}: {mine[1]['bytes'] / 1e9:.2f} GB, least of {len(mine)} rounds; "
              "ratios to sluice are medians of the rounds' ratios")
        print(f"{'':20}{'wall s':>8}{'MB/s':>7}{'cpu s:db':>10}{'target':>8}{'both/GB':>9}"
              f"{'stored GB':>11}{'wall x':>8}{'db cpu x':>10}{'target x':>10}{'cpu x':>7}")
        for tool in dict.fromkeys(r["tool"] for r in runs if r["what"] == what):
            rows = [r for r in runs if r["what"] == what and r["tool"] == tool]
            least = {k: min(r[k] for r in rows) for k in ("wall_s", "db_cpu_s", "target_cpu_s")}
            both = min(r["db_cpu_s"] + r["target_cpu_s"] for r in rows)
            gigabytes = rows[0]["bytes"] / 1e9

            def ratio(value):
                pairs = [(value(r), value(mine[r["round"]])) for r in rows]
                return statistics.median(a / b if b > 0.005 else float("nan") for a, b in pairs)

            row = {
                "what": what, "tool": tool, "rounds": len(rows), "gigabytes": round(gigabytes, 3),
                **{k: round(v, 3) for k, v in least.items()},
                "megabytes_per_s": round(gigabytes * 1000 / least["wall_s"]),
                "cpu_s_per_gigabyte": round(both / gigabytes, 3),
                "stored_gigabytes": round(rows[-1]["stored"] / 1e9, 3),
                "wall_ratio": round(ratio(lambda r: r["wall_s"]), 2),
                "db_cpu_ratio": round(ratio(lambda r: r["db_cpu_s"]), 2),
                "target_cpu_ratio": round(ratio(lambda r: r["target_cpu_s"]), 2),
                "cpu_ratio": round(ratio(lambda r: r["db_cpu_s"] + r["target_cpu_s"]), 2),
            }
            summary.append(row)
            print(f"{tool:20}{row['wall_s']:8.2f}{row['megabytes_per_s']:7d}{row['db_cpu_s']:10.2f}"
                  f"{row['target_cpu_s']:8.2f}{row['cpu_s_per_gigabyte']:9.2f}"
                  f"{row['stored_gigabytes']:11.2f}{row['wall_ratio']:8.2f}"
                  f"{row['db_cpu_ratio']:10.2f}{row['target_cpu_ratio']:10.2f}{row['cpu_ratio']:7.2f}")
    busy = statistics.median(r["others_cores"] for r in runs)
    print(f"\nprocessors used by others meanwhile: median {busy:.1f}")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            json.dump({"version": 1, "others_cores": busy, "summary": summary, "runs": runs}, out,
                      indent=1)


main()
