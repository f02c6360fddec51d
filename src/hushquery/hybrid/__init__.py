"""The hybrid model (BLENDER): a few users trust a curator, all others trust nobody; their estimates are blended.

headlist -> clients -> blend, after Avent, Korolova, Zeber, Hovden and Livshits 2017. Opt-in users and clients are two
populations with two guarantees.
"""
