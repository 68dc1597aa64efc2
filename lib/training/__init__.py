"""Networks and their training, with many runs as one batch.

``networks``, ``steerable``, ``linear_networks``   what is trained
``risks``, ``sampling_laws``, ``augmented_descent``   risks over a group, and descent on them
``gradient_flow``, ``log_loss_descent``, ``optimality``, ``margins``   where descent goes
``synthetic``   random graphs and shapes to train on
``ensembles``, ``ensemble_metrics``   many members
``units``, ``mean_field``, ``mean_field_descent``, ``free_energy``, ``finite_volumes``, ``discovery``   many neurons
"""
