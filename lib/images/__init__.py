"""Small images with labels for class and orientation, and scores for generated ones.

``bundled``, ``datasets``, ``histology``   digits and pictures that come with libraries, MNIST to fetch, tissue
``sets``, ``turned``   images turned, mirrored and labelled; a share of a set, turned once and for all
``turns``, ``laws``   a group that moves small images; laws of images to be learnt from a sample, and scores
``features``, ``metrics``   a classifier whose features know class and orientation, and scores from them
"""
