"""BLENDER (Avent et al. 2017): populations, exact joint laws of all counts, runs, figures, verdicts, the page."""
