"""Small images with labels for class and orientation, and scores for generated ones.

``bundled``, ``datasets``, ``histology``   digits that come with the book, sets to fetch, synthetic stained tissue
``sets``   images turned, mirrored and labelled
``features``, ``metrics``   a classifier whose features know class and orientation, and scores from them
"""
