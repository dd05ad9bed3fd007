"""The learner: replay views, update budget, algorithms, checkpoints, metrics."""
