"""Where gradient descent goes among many solutions: linear networks, their flow, and the margins that it finds.

``linear_networks``, ``steerable``   what is trained
``gradient_flow``, ``log_loss_descent``   how
``margins``, ``optimality``   what is found, and how one knows
"""
