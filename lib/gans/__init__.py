"""Games between a generator and a discriminator that know a group: objectives, players, training.

``objectives`` says what the players optimise, ``game`` is what all games share, ``layers`` has batches of networks
with free or tied weights. Three kinds of players: points of the plane (``plane_players``, ``plane_games``; laws and
scores in ``mixtures``), small images (``pixel_games``), and convolutional networks (``planar_convolution``,
``image_players``; the page of their run plays them). The first two train many runs as one batch.
"""
