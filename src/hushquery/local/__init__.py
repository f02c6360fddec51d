"""Nobody is trusted: randomizers that run on the client, and estimators for the server.

``randomizer.py`` has what every mechanism shares: its interface, the integers that decide coins, intervals. Frequency
oracles have a file each in ``oracles/``; ``numbers/`` has averages and histograms, ``rappor/`` texts.
``configuration.py`` makes of a task what its clients run, and ``report.py`` is what they send.
"""
