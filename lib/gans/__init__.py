"""Games between a generator and a discriminator that know a group: objectives, players, training.

``objectives`` says what the players optimise. Three kinds of players: points of the plane (``plane_players``,
``plane_games``; laws in ``mixtures``, exact divergences for them in ``known_pairs``), small images
(``pixel_players``, ``pixel_games``), and convolutional networks (``planar_convolution``, ``image_players``; trained
by ``training``, as ``settings`` say). The first two train many runs as one batch, the third one long run.
"""
