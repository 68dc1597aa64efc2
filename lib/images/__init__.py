"""Sets of images with labels for class and orientation, a classifier whose features know both, and scores from them."""
