"""A plugin of pytest for runs against mutants: Hypothesis stops at the first example that fails, and shrinks none."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate))
settings.load_profile("mutants")
