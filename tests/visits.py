"""A small synthetic table of library visits. Nobody in it exists."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

BRANCHES = ("north", "south", "east", "west", "mobile")


def write_visits(path: Path, users: int = 20_000, seed: int = 1) -> Path:
    """Write a CSV file of visits (user, branch, minutes, age) with a few very busy readers."""
    rng = np.random.default_rng(seed)
    ages = np.clip(rng.normal(43, 19, users), 6, 101).astype(int)
    visits = 1 + rng.negative_binomial(1, 0.35, users) + (rng.random(users) < 0.01) * rng.integers(30, 200, users)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "branch", "minutes", "age"])
        for user in range(users):
            for _ in range(int(visits[user])):
                branch = BRANCHES[int(rng.choice(5, p=[0.34, 0.27, 0.2, 0.15, 0.04]))]
                writer.writerow([f"reader-{user:06d}", branch, int(rng.gamma(2.0, 22.0)) + 1, int(ages[user])])
    return path
