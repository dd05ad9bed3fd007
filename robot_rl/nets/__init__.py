"""Networks: MLP ensembles, tanh-Gaussian heads."""
