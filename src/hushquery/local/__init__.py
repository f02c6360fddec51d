"""Nobody is trusted: randomizers that run on the client, and estimators for the server.

``chance.py`` has the integers that decide coins, ``oracle.py`` what every frequency oracle shares; then a file each:
``krr``, ``unary`` (OUE), ``olh``, ``subset``, ``hadamard``, ``two_stage``. ``choose.py`` picks the best of them for a
domain and an epsilon.
"""
