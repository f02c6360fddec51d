"""Nobody is trusted: randomizers that run on the client, and estimators for the server.

``randomizer.py`` has what every mechanism shares: its interface and the integers that decide coins; ``intervals.py``
what a count says of a share. Frequency oracles have a file each in ``oracles/``; ``numbers/`` has averages and
histograms, ``rappor/`` texts. ``configuration.py`` makes of a task what its clients run, ``report.py`` what they send.
"""
