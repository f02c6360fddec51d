"""Draws per second of our exact samplers, side by side with OpenDP (exact too) and numpy (not private), in one run.

    make bench            or   .venv/bin/python benchmarks/bench_samplers.py [--json] [--quick]

Rounds are interleaved, so that load on the machine hits every sampler alike; ratios are of medians of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp

from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import SystemBits, sampler

DRAWS = 1_000_000
# OpenDP is slower by orders of magnitude; it draws fewer so that the rounds stay comparable in length.
OPENDP_DRAWS = 50_000
ROUNDS = 5


def contenders(scale: float) -> dict[str, tuple[int, Callable[[], object]]]:
    """Build one zero-argument draw per sampler."""
    laplace = sampler(DiscreteLaplace(Fraction(scale)))
    gaussian = sampler(RoundedGaussian(Fraction(scale)))
    bits = SystemBits()
    generator = np.random.default_rng()
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    space_l2 = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    opendp_laplace = dp.m.make_laplace(*space, scale=scale)
    opendp_gaussian = dp.m.make_gaussian(*space_l2, scale=scale)
    zeros = [0] * OPENDP_DRAWS
    return {
        "hushquery discrete Laplace": (DRAWS, lambda: laplace.draw(DRAWS, bits)),
        "hushquery rounded Gaussian": (DRAWS, lambda: gaussian.draw(DRAWS, bits)),
        "OpenDP discrete Laplace": (OPENDP_DRAWS, lambda: opendp_laplace(zeros)),
        "OpenDP discrete Gaussian": (OPENDP_DRAWS, lambda: opendp_gaussian(zeros)),
        "numpy Laplace (float, not private)": (DRAWS, lambda: generator.laplace(0, scale, DRAWS)),
        "numpy normal (float, not private)": (DRAWS, lambda: generator.normal(0, scale, DRAWS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one round")
    given = parser.parse_args()
    as_json, rounds = given.json, 1 if given.quick else ROUNDS
    results = []
    for scale in (1.0, 8.69, 100.0):
        samplers = contenders(scale)
        seconds: dict[str, list[float]] = {name: [] for name in samplers}
        for _ in range(rounds):
            for name, (_, draw) in samplers.items():
                start = time.process_time()
                draw()
                seconds[name].append(time.process_time() - start)
        rates = {name: samplers[name][0] / statistics.median(times) for name, times in seconds.items()}
        results += [
            {"scale": scale, "sampler": name, "draws_per_cpu_second": round(rate)} for name, rate in rates.items()
        ]
        if not as_json:
            print(f"scale {scale:g}, million draws per CPU second (median of {rounds} interleaved rounds):")
            for name, rate in rates.items():
                versus = rate / rates["OpenDP discrete Laplace" if "Laplace" in name else "OpenDP discrete Gaussian"]
                print(f"  {name:36} {rate / 1e6:8.2f}   {versus:6.1f} x OpenDP")
    if as_json:
        from measure import machine

        told = {"benchmark": "samplers", **machine(), "settings": {"rounds": rounds}, "measured": results}
        print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
