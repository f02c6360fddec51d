"""The local model: randomizers that run on the client, and estimators for the server.

``randomizer.py`` is the interface of every mechanism: frequency oracles in ``oracles/``, averages and histograms in
``numbers/``, texts in ``rappor/``.
"""
