"""Training on turned data: networks, descent on augmented risks, and the laws that turns are drawn from.

``networks``, ``synthetic``   what is trained, and random graphs and shapes to train on
``risks``   risks over a group, their gradients and Hessians
``sampling_laws``, ``augmented_descent``   laws of group elements, and descent with them for many starts at once
"""
