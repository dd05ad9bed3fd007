"""Networks: encoders of observations, MLP ensembles, policies over actions and chunks."""
